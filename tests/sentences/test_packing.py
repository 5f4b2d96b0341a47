"""Packing: every sentence is in exactly one row, rows have no padding, and rows keep to the token budget."""

import numpy as np
import pytest
from helpers import tiny
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.packing import fill_rows, pack

SENTENCES = tiny.sentences(tiny.tokenizer())


@pytest.fixture(scope="module")
def built() -> list[Sentence]:
    sentences = [SENTENCES.build(tiny.episode(number), last=last) for number, last in enumerate((5, 1, 2))]
    for number, sentence in enumerate(sentences):
        sentence.about = f"sentence {number}"
    return sentences


@given(st.lists(st.integers(1, 60)), st.integers(1, 50))
def test_every_sentence_is_in_one_row_and_rows_keep_to_the_budget(lengths, budget):
    rows = fill_rows(lengths, budget)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(row == sorted(row) for row in rows)
    totals = [sum(lengths[index] for index in row) for row in rows]
    assert all(total <= budget or len(row) == 1 for row, total in zip(rows, totals, strict=True))
    assert all(rows)


@given(st.lists(st.integers(1, 50)), st.integers(50, 60))
def test_all_rows_but_one_are_more_than_half_full(lengths, budget):
    """A guarantee of first fit: two rows that are at most half full would share one row."""
    totals = [sum(lengths[index] for index in row) for row in fill_rows(lengths, budget)]
    assert sum(2 * total <= budget for total in totals) <= 1


def test_rows_are_filled_longest_first():
    assert fill_rows([3, 7, 2, 5, 8], 10) == [[2, 4], [0, 1], [3]]
    assert fill_rows([11, 4], 10) == [[0], [1]]
    assert fill_rows([], 10) == []


def test_a_packed_row_concatenates_sentences_and_restarts_positions(built):
    row = pack(built)
    assert row["input_ids"].tolist() == [[id_ for sentence in built for id_ in sentence.input_ids]]
    assert row["labels"].tolist() == [[label for sentence in built for label in sentence.labels]]
    assert row["position_ids"].tolist() == [[at for sentence in built for at in range(len(sentence))]]
    assert row["cu_seqlens"].tolist() == np.cumsum([0, *map(len, built)]).tolist()
    assert row["about"] == ["sentence 0", "sentence 1", "sentence 2"]


def test_a_packed_row_has_the_numbers_from_which_its_cost_is_computed_outside_its_tensors(built):
    """Tensors move to a GPU, and reading their values would wait for it."""
    row = pack(built)
    assert row["lengths"] == list(map(len, built))
    assert row["supervised"] == sum(sentence.supervised for sentence in built) == int((row["labels"] != IGNORED).sum())
    assert row["screen_sizes"] == [screen.shape[1:] for sentence in built for screen in sentence.screens]


def test_each_supervised_token_has_the_kind_of_its_action(built):
    row = pack(built)
    ends = (row["labels"] == SENTENCES.tokenizer.eos_token_id).nonzero()[:, 1]
    names = [ACTION_NAMES[int(row["kinds"][0, at])] for at in ends]
    assert names == [action.name for last in (5, 1, 2) for action in tiny.ACTIONS[:last]]
    assert ((row["kinds"] == NO_ACTION) == (row["labels"] == IGNORED)).all()


def test_the_first_token_of_every_sentence_has_no_label(built):
    row = pack(built)
    assert (row["labels"][0, row["cu_seqlens"][:-1]] == IGNORED).all()


def test_roles_and_weights_are_columns_only_if_they_differ_from_the_default():
    plain, special = Sentence(), Sentence()
    for sentence in (plain, special):
        sentence.read([1, 2])
        sentence.learn([3], kind=0)
    special.learn([4, 5], role="thought", weight=0.25)
    assert not {"roles", "loss_weights"} & pack([plain, plain]).keys()
    row = pack([plain, special])
    assert row["roles"].tolist() == [[0, 0, 0, 0, 0, 0, 1, 1]]
    assert row["loss_weights"].tolist() == [[1, 1, 1, 1, 1, 1, 0.25, 0.25]]
    assert special.prefix(4).weights == [1, 1, 1, 0.25]
