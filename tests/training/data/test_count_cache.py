"""Token counts are kept on disk: a run that starts again tokenises a sample, and the counts are the same."""

import logging
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.models.tokenizers_of_all_kinds import byte_level

from vlm_agent.action_languages import language_settings
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.sentences.steps import StepSentences
from vlm_agent.training.data import count_cache, token_counts
from vlm_agent.training.data.count_cache import CountCache, cache_folder
from vlm_agent.training.data.text_lengths import TextLengths
from vlm_agent.training.data.token_counts import columns_for, count_tokens

BINNED = {"name": "binned", "bins": tiny.BINS}
LANGUAGE = language_settings({"name": "auto_ui"}).build()
SENTENCES = tiny.sentences(tiny.tokenizer())
TYPING = tuple(Action.type_text(f"word {number}") for number in range(100))


@pytest.fixture
def dataset(tmp_path):
    return ShardDataset(tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1, TYPING)]))


@pytest.fixture
def tokenised(monkeypatch) -> list[int]:
    """The number of texts of each call that tokenises."""
    calls, plain = [], token_counts.text_lengths
    monkeypatch.setattr(
        token_counts, "text_lengths", lambda sentences, texts: calls.append(len(texts)) or plain(sentences, texts)
    )
    return calls


def counted(dataset, cache: CountCache | None, sentences=SENTENCES) -> list[list[int]]:
    counts = count_tokens(columns_for(dataset, sentences), sentences, cache=cache)
    return [counts.whole.tolist(), counts.action.tolist()]


def test_the_second_start_tokenises_a_sample_and_counts_the_same(dataset, tmp_path, tokenised):
    cache = CountCache(tmp_path / "cache", BINNED, least=1)
    expected = counted(dataset, None)
    tokenised.clear()
    assert [counted(dataset, cache), counted(dataset, cache)] == [expected, expected]
    assert tokenised == [107, 64]
    assert [path.suffix for path in (tmp_path / "cache" / "token_counts").iterdir() if path.suffix != ".lock"] == [
        ".npz"
    ]


def test_few_texts_are_not_cached(dataset, tmp_path):
    assert counted(dataset, CountCache(tmp_path / "cache", BINNED)) == counted(dataset, None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("change", ["tokenizer", "language", "template", "data"])
def test_counts_of_another_tokenizer_language_template_or_data_are_not_used(change, dataset, tmp_path):
    cache, sentences = CountCache(tmp_path / "cache", BINNED, least=1), SENTENCES
    counted(dataset, cache)
    if change == "tokenizer":
        sentences = tiny.sentences(byte_level())
    elif change == "language":
        cache = replace(cache, language={"name": "binned", "bins": 7})
        sentences = replace(sentences, language=replace(sentences.language, bins=7))
    elif change == "template":
        sentences = replace(sentences, template=replace(sentences.template, goal="{goal} please: "))
    else:
        dataset = ShardDataset(tiny.write_shards(tmp_path / "other", [tiny.episode(0), tiny.episode(2, TYPING[1:])]))
    assert counted(dataset, cache, sentences) == counted(dataset, None, sentences)
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 2


def test_sentences_of_single_steps_are_cached_without_a_template(tmp_path):
    words = build_word_tokenizer(["open", "word"], LANGUAGE.vocabulary(), 2000)
    sentences, cache = StepSentences(words, LANGUAGE), CountCache(tmp_path / "cache", {"name": "auto_ui"}, least=1)
    for _ in range(2):
        found = cache.lengths(sentences, b"content", 3, lambda numbers: TextLengths(*_three(numbers)))
        assert found.tokens.tolist() == [5, 6, 7]
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1


def _three(numbers) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray([5 + number for number in numbers], np.int32), np.ones(len(numbers), bool)


def test_padding_and_truncation_that_calls_set_do_not_change_the_key(dataset, tmp_path):
    cache, sentences = CountCache(tmp_path / "cache", BINNED, least=1), tiny.sentences(tiny.tokenizer())
    counted(dataset, cache, sentences)
    sentences.tokenizer.backend_tokenizer.enable_truncation(7)
    sentences.tokenizer.backend_tokenizer.no_padding()
    key = count_cache._tokenizer_digest(sentences.tokenizer)
    sentences.tokenizer.backend_tokenizer.no_truncation()
    assert key == count_cache._tokenizer_digest(sentences.tokenizer)


def _damaged(path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def _outdated(path) -> None:
    with np.load(path) as file:
        tokens, is_writable = file["tokens"], file["is_writable"]
    np.savez(path, tokens=tokens + 1, is_writable=is_writable)


def _of_other_texts(path) -> None:
    np.savez(path, tokens=np.ones(3, np.int32), is_writable=np.ones(3, bool))


@pytest.mark.parametrize("spoil", [_damaged, _outdated, _of_other_texts])
def test_a_damaged_or_outdated_file_is_rewritten_with_a_message(spoil, dataset, tmp_path, caplog):
    cache = CountCache(tmp_path / "cache", BINNED, least=1)
    expected = counted(dataset, cache)
    (path,) = (tmp_path / "cache").rglob("*.npz")
    spoil(path)
    with caplog.at_level(logging.WARNING):
        assert counted(dataset, cache) == expected
    assert f"{path} " in caplog.text and "counted again" in caplog.text
    caplog.clear()
    assert counted(dataset, cache) == expected
    assert not caplog.text


def test_a_read_only_cache_folder_logs_a_message_and_the_run_continues(dataset, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = CountCache(tmp_path / "file", BINNED, least=1)
    assert counted(dataset, cache) == counted(dataset, None)
    assert "set VLM_AGENT_CACHE" in caplog.text and "(Not a directory)" in caplog.text


def test_one_of_several_simultaneous_processes_counts(tmp_path):
    cache, measured, found = CountCache(tmp_path, BINNED, least=1), [], []

    def measure(numbers):
        if len(numbers) == 1000:
            measured.append(threading.get_ident())
            time.sleep(0.3)
        return TextLengths(np.ones(len(numbers), np.int32), np.ones(len(numbers), bool))

    starts = [
        threading.Thread(target=lambda: found.append(cache.lengths(SENTENCES, b"", 1000, measure))) for _ in range(3)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(measured) == 1
    assert [lengths.tokens.sum() for lengths in found] == [1000] * 3


def test_the_folder_is_the_users_cache_unless_the_environment_names_one(monkeypatch, tmp_path):
    monkeypatch.delenv("VLM_AGENT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vlm-agent"
    monkeypatch.setenv("VLM_AGENT_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert count_cache._SAMPLE > 0
