"""Lengths are kept beside the shards: a run that starts again counts some episodes, and the lengths are the same."""

import logging
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny

from vlm_agent.action_languages import language_settings
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.training.data import lengths
from vlm_agent.training.data.lengths import Counter, counted, tokenizer_digest

TYPING = tuple(Action.type_text(f"word {number}") for number in range(20))


@pytest.fixture
def dataset(tmp_path, monkeypatch) -> ShardDataset:
    monkeypatch.setattr(lengths, "_LEAST_STEPS", 1)
    return ShardDataset(tiny.write_shards(tmp_path / "shards", [tiny.episode(n, TYPING[: n + 1]) for n in range(20)]))


def counter(calls: list[str], identity: str = "binned") -> Counter:
    sentences = tiny.sentences(tiny.tokenizer())

    def count(episode):
        calls.append(episode.id)
        rows = [(sentences.count(step.action.text),) for step in episode.steps]
        return [(sentences.length(sentences.segments(episode)),)], rows

    return Counter(count, ("tokens",), ("text",), identity)


def files(dataset: ShardDataset) -> list:
    return sorted((dataset.directory / ".lengths").glob("*.npz"))


def test_the_second_start_counts_some_episodes_and_finds_the_same(dataset):
    calls: list[str] = []
    first = counted(dataset, range(20), counter(calls))
    assert len(calls) == 20
    again = counted(dataset, range(20), counter(calls))
    assert len(calls) == 28
    assert np.array_equal(first.items, again.items) and np.array_equal(first.steps, again.steps)
    assert first.items["episode"].tolist() == list(range(20))
    assert first.steps["number"].tolist() == [step for number in range(20) for step in range(number + 1)]


def test_other_episodes_settings_and_shards_have_files_of_their_own(dataset, tmp_path):
    counted(dataset, range(20), counter([]))
    counted(dataset, range(10), counter([]))
    counted(dataset, range(20), counter([], "named"))
    assert len(files(dataset)) == 3
    other = ShardDataset(tiny.write_shards(tmp_path / "other", [tiny.episode(0)]))
    counted(other, range(1), counter([]))
    assert files(other)[0].name not in {path.name for path in files(dataset)}


def test_few_steps_have_no_file(dataset, monkeypatch):
    monkeypatch.setattr(lengths, "_LEAST_STEPS", 1000)
    counted(dataset, range(20), counter([]))
    assert not files(dataset)


def test_padding_and_truncation_of_earlier_calls_do_not_change_the_digest_of_a_tokenizer():
    words = tiny.tokenizer()
    before = tokenizer_digest(words)
    words.backend_tokenizer.enable_truncation(7)
    words.backend_tokenizer.enable_padding()
    assert tokenizer_digest(words) == before
    words.add_tokens(["more"])
    assert tokenizer_digest(words) != before


def _damaged(path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def _outdated(path) -> None:
    with np.load(path) as file:
        items, steps = file["items"], file["steps"]
    items["tokens"] += 1
    np.savez(path, items=items, steps=steps)


def _of_other_columns(path) -> None:
    np.savez(path, items=np.ones(3, np.int32), steps=np.ones(3, bool))


@pytest.mark.parametrize("spoil", [_damaged, _outdated, _of_other_columns])
def test_a_damaged_or_outdated_file_is_rewritten_with_a_message(spoil, dataset, caplog):
    expected = counted(dataset, range(20), counter([]))
    (path,) = files(dataset)
    spoil(path)
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(counted(dataset, range(20), counter([])).items, expected.items)
    assert f"{path} " in caplog.text and "counted again" in caplog.text
    caplog.clear()
    assert np.array_equal(counted(dataset, range(20), counter([])).items, expected.items)
    assert not caplog.text


def test_a_read_only_folder_logs_a_message_and_the_run_continues(dataset, caplog):
    (dataset.directory / ".lengths").write_text("")
    assert len(counted(dataset, range(20), counter([])).items) == 20
    assert "token counts cannot be kept in" in caplog.text


def test_one_of_several_simultaneous_processes_counts(dataset):
    calls: list[str] = []
    starts = [threading.Thread(target=counted, args=(dataset, range(20), counter(calls))) for _ in range(3)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(calls) == 20 + 2 * 8


@pytest.mark.parametrize("name", ["named", "element_index"])
def test_sentences_with_names_and_numbers_of_elements_are_counted_as_they_are_written(dataset, name):
    sentences = replace(tiny.sentences(tiny.tokenizer()), language=language_settings({"name": name}).build())
    for episode, unread in zip(dataset, dataset.each_without_pixels(range(20)), strict=True):
        assert sentences.length(sentences.segments(unread)) == len(sentences.build(episode))
