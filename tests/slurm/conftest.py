"""A cluster for all tests here, and a folder to submit from for each."""

import pytest
from helpers.slurm.cluster import Cluster, missing
from helpers.slurm.workplace import Workplace


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    if lacking := missing():
        pytest.skip(f"needs Slurm and root's rights to run it, and here is no {', no '.join(lacking)}")
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def workplace(cluster, tmp_path):
    """Cancels jobs that a failed test left in the queue."""
    yield Workplace(tmp_path, cluster)
    cluster.cancel_all()
