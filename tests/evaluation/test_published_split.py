"""A published split is recognised by its episodes, never by the name of the benchmark."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from helpers.agents.knowing_agent import Knowing, write_shards
from helpers.data import aitz_counts
from rich.console import Console

from vlm_agent.cli import OK, main
from vlm_agent.datasets.selection import read_splits
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import PublishedSplit, ids_digest, read_benchmark
from vlm_agent.evaluation.offline.run import evaluate, finish
from vlm_agent.evaluation.report.published import compare_split, is_published_data
from vlm_agent.simulator.demonstrations import simulate_episode

EVAL = Path(__file__).parents[2] / "eval"
NAME = "AITW, Auto-UI's split"


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards", ["train", "test"])


def _published(shards, **changes):
    """What is published if the test episodes of `shards` are."""
    dataset = ShardDataset(shards, split="test")
    ids = {}
    for id_, subset in zip(dataset.ids, dataset.subsets, strict=True):
        ids.setdefault(subset, []).append(id_)
    content = {
        "episodes": {subset: len(of) for subset, of in ids.items()},
        "ids": {subset: ids_digest(of) for subset, of in ids.items()},
    }
    for key, values in changes.items():
        content[key] = content.get(key, {}) | values
    return content


def _evaluated(tmp_path, shards, published, **overrides):
    content = {"name": NAME, "about": "a", "source": "s", "shards": str(shards), "published_split": published}
    (tmp_path / "benchmark.yaml").write_text(json.dumps(content))
    printed = StringIO()
    benchmark = read_benchmark(tmp_path / "benchmark.yaml", overrides)
    console = Console(file=printed, width=100)
    evaluate(Knowing(folder=shards), benchmark, tmp_path / "out", console, controls=False)
    about = finish(tmp_path / "out", console)["trained"]["about"]
    return about["published_split"], printed.getvalue(), (tmp_path / "out/report.html").read_text()


def test_the_published_episodes_are_recognised_on_the_terminal_and_in_the_report(tmp_path, shards):
    split, printed, report = _evaluated(tmp_path, shards, _published(shards))
    assert split["differs"] == {} and "general" in split["agrees"]
    assert printed.count(f"Published numbers: On the split of this run: {NAME}") == 2  # by evaluate and by finish
    assert "On the split of this run: AITW" in report and "No table is known" not in report
    again = tmp_path / "again.html"
    assert main(["score", str(tmp_path / "out"), "--shards", str(shards), "--report", str(again)]) == OK
    assert "On the split of this run: AITW" in again.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"episodes": {"general": 948}}, "2 episode(s) here, 948 published"),
        ({"steps": {"general": 99}}, "4 steps here, 99 published"),
        ({"ids": {"general": "0" * 64}}, "other episodes than the published ones"),
    ],
)
def test_other_episodes_are_not(tmp_path, shards, changes, reason):
    split, printed, report = _evaluated(tmp_path, shards, _published(shards, **changes))
    assert split["differs"] == {"general": reason} and "general" not in split["agrees"]
    assert f"Subsets that differ or are not known: general ({reason})." in printed
    assert f"Subsets that differ or are not known: general ({reason})." in report


def test_a_part_of_the_published_episodes_is_not(tmp_path, shards):
    split, _, _ = _evaluated(tmp_path, shards, _published(shards), limit=1)
    assert split["agrees"] == []
    assert split["differs"]["general"] == "1 episode(s) here, 2 published"
    others = {subset: reason for subset, reason in split["differs"].items() if subset != "general"}
    assert others and set(others.values()) == {"0 episode(s) here, 2 published"}


def test_without_published_episodes_in_the_benchmark_none_is_known_to_be(tmp_path, shards):
    split, printed, report = _evaluated(tmp_path, shards, None)
    assert split["agrees"] == []
    none = "No table is known to be on the split of this run."
    assert f"Published numbers: {none} Subsets that differ or are not known: general" in printed and none in report


def test_episodes_of_a_simulated_phone_in_aitws_format_are_not_aitw(tmp_path):
    episode, _ = simulate_episode(0, "test", (96, 64))
    for name, device in (("simulated", episode.device_type), ("recorded", "PIXEL_6")):
        with ShardWriter(tmp_path / name / "general/one.parquet") as writer:
            writer.write(replace(episode, device_type=device), "test")
        files = [{"shard": "general/one.parquet", "subset": "general", "episodes_written": 1}]
        write_manifest(tmp_path / name, {"source": "aitw", "files": files})
        assert is_published_data(ShardDataset(tmp_path / name)) == (name == "recorded")


def test_a_benchmark_without_published_numbers_is_not_compared(tmp_path, shards):
    scores = evaluate(
        Knowing(folder=shards),
        read_benchmark(None, {"shards": shards, "name": "Simulated phone"}),
        tmp_path / "out",
        Console(file=StringIO()),
        controls=False,
    )
    assert "published_split" not in scores["trained"]["about"]


def test_auto_uis_benchmark_identifies_the_test_episodes_of_its_split_files(shared):
    """cooelf/Auto-GUI, dataset/*_texts_splits.json; episodes of two splits are excluded by `convert`."""
    published = read_benchmark(EVAL / "aitw_auto_ui.yaml", {}).published_split
    for subset in published.episodes:
        path = shared / f"data/aitw_splits/{subset}.json"
        splits = read_splits([path])
        ids = [id_ for id_ in splits.labels if splits.split_of(id_) == "test"]
        assert published.difference(subset, ids, steps=0) is None
        assert published.difference(subset, [*ids[:-1], "another"], steps=0) is not None


def test_aitzs_benchmark_states_the_counts_of_the_paper():
    published = read_benchmark(EVAL / "aitz.yaml", {}).published_split
    counts = {subset: counts for (split, subset), counts in aitz_counts.PUBLISHED.items() if split == "test"}
    assert {subset: (published.episodes[subset], published.steps[subset]) for subset in published.episodes} == counts
    assert sum(published.episodes.values()) == 506


@pytest.mark.parametrize(
    ("published", "words"),
    [
        ("episodes: {general: 3}", "subset general needs steps or ids"),
        ("{episodes: {general: 3}, steps: {general: 9, install: 1}}", "subset install has no number of episodes"),
        ("{episodes: {general: 3}, ids: {general: abc}}", "ids.general"),
    ],
)
def test_an_incomplete_statement_is_an_error(tmp_path, published, words):
    path = tmp_path / "x.yaml"
    indented = published if published.startswith("{") else f"{{{published}}}"
    path.write_text(f"name: n\nabout: a\nsource: s\nshards: shards/x\npublished_split: {indented}\n")
    with pytest.raises(DatasetError, match=words):
        read_benchmark(path, {})


def test_subsets_that_the_benchmark_does_not_state_differ(shards):
    dataset = ShardDataset(shards, split="test")
    of_general = PublishedSplit(episodes={"general": 2}, steps={"general": 4})
    split = compare_split(of_general, dataset, range(len(dataset)))
    assert split["agrees"] == ["general"]
    assert set(split["differs"]) == set(dataset.subsets) - {"general"}
