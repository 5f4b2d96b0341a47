"""Fixtures for the tests of data sets; it also lets those in folders import the helpers that lie here."""

import json

import pytest
from helpers.data.made_episodes import made_episode

from vlm_agent.datasets.sources.aitw import write_episodes


@pytest.fixture
def source(tmp_path):
    """Two files of two episodes each, in a folder of folders, beside a split file as `simulate` writes one."""
    folder = tmp_path / "aitw"
    for subset, ids in (("general", "ab"), ("single", "cd")):
        path = folder / subset / f"{subset}-00000-of-00001"
        write_episodes(path, [made_episode(id_, subset) for id_ in ids])
    (folder / "splits.json").write_text(json.dumps({"train": ["a", "c"], "val": ["b"]}))
    return folder
