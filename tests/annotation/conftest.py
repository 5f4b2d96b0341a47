"""Small shards to annotate, and a server that writes texts for them."""

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.data.feature_shards import write_several
from helpers.pages.annotation_requests import written


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two shards of two episodes of five steps without texts; the last episode of each is in split test."""
    return write_several(tmp_path_factory.mktemp("data") / "shards")


@pytest.fixture
def server():
    """(URL, requests) of a server that answers every request."""
    with serving(lambda _, body: Reply(written(body))) as served:
        yield served
