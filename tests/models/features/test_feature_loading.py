"""Episodes are loaded ahead of the model by half of the cores."""

import os

import pytest

from vlm_agent.models.features.job import default_workers


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (3, 1), (4, 2), (15, 7), (16, 8), (17, 8), (128, 8)])
def test_half_of_the_cores_at_most_eight_load_episodes(cores, workers, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert default_workers() == workers
