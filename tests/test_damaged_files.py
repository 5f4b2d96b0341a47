"""A damaged file is read as it was before, or is an error of one line that names it: never a traceback, never another
number.

`pytest -m slow tests/test_damaged_files.py -s` reads 10,000 mutations of each kind of file and prints the counts.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.made_episodes import ACTIONS, made_episode
from helpers.mutated import mutated

from vlm_agent.agents import Usage
from vlm_agent.datasets.shards.dataset import ShardDataset, ShardWriter, write_manifest
from vlm_agent.datasets.shards.index import INDEX, INDEXED
from vlm_agent.datasets.shards.schema import ALL_BUT_PIXELS
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import predictions_for, read_predictions, write_predictions
from vlm_agent.evaluation.scoring.metrics import score

FEW, MANY = 60, 10_000


def _episodes(count=8):
    actions = [ACTIONS[number % 5 : number % 5 + 4] for number in range(count)]
    return [made_episode(f"e{number}", actions=actions[number], size=(12, 8)) for number in range(count)]


def _write_predictions(folder):
    rows = [
        row
        for number, episode in enumerate(_episodes())
        for row in predictions_for(
            episode,
            [f"tap {number} {step}" for step in range(len(episode))],
            [step.action if (number + at) % 3 else None for at, step in enumerate(episode.steps)],
            [Usage(10 + number, 2, 1, 0.5, True)] * len(episode),
        )
    ]
    path = folder / "predictions.parquet"
    write_predictions(path, rows)
    return path


def _write_shards(folder):
    with ShardWriter(folder / "general/0.parquet") as writer:
        for number, episode in enumerate(_episodes(2)):
            writer.write(episode, ("train", "test")[number % 2])
    files = [{"shard": "general/0.parquet", "episodes_written": 2}]
    write_manifest(folder, {"files": files})
    return folder


def _write_shard(folder):
    return _write_shards(folder) / "general/0.parquet"


def _read_shard(path):
    dataset = ShardDataset(path.parent.parent)
    return [dataset.row(index) for index in range(len(dataset))], dataset.table(ALL_BUT_PIXELS).to_pylist()


def _write_index(folder):
    return _write_shards(folder) / INDEX


def _read_index(path):
    dataset = ShardDataset(path.parent)
    return dataset.ids, dataset.splits, list(dataset.screen_sizes), dataset.table(INDEXED).to_pylist()


@dataclass(frozen=True)
class Kind:
    """`write` writes files into a folder and returns the one to damage; `read` returns what a command reads."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]


KINDS = {
    "predictions": Kind(_write_predictions, read_predictions),
    "scores of predictions": Kind(_write_predictions, score),
    "shard": Kind(_write_shard, _read_shard),
    "index of shards": Kind(_write_index, _read_index),
}


def _outcomes(kind: Kind, folder: Path, count: int) -> Counter[str]:
    """How often a mutation was read as before, and how often it was an error that names the file."""
    path = kind.write(folder)
    content, expected = path.read_bytes(), kind.read(path)
    rng, outcomes = random.Random(27), Counter[str]()
    for number in range(count):
        damage = mutated(rng, content)
        path.write_bytes(damage)
        try:
            found = kind.read(path)
        except UserError as error:
            assert str(path) in str(error), f"mutation {number} is an error without the file: {error}"
            assert "\n" not in str(error), f"mutation {number} is an error of several lines: {error}"
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number} ends in {type(error).__name__}: {error}") from error
        else:
            assert found == expected, f"mutation {number} is read as something else"
            outcomes["as before"] += 1
    path.write_bytes(content)
    assert kind.read(path) == expected
    return outcomes


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_damaged_file_is_read_as_before_or_refused_by_name(kind, tmp_path):
    assert _outcomes(kind, tmp_path, FEW)["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_ten_thousand_mutations(name, tmp_path):
    outcomes = _outcomes(KINDS[name], tmp_path, MANY)
    print(f"\n{name}: {MANY:,} mutations, {outcomes['refused']:,} refused, {outcomes['as before']:,} read as before")
    assert outcomes.total() == MANY
