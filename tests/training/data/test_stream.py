"""The stream of rows: every sentence once per pass, the same for any reader and any starting position."""

import itertools
import multiprocessing
import pickle
from operator import itemgetter

import numpy as np
import pytest
from helpers import tiny
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError, RecipeError
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import IGNORED
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.sentences.windows import Window, windows
from vlm_agent.training.data.sentence_kinds.elements import Elements
from vlm_agent.training.data.sentence_kinds.trajectory import Trajectories
from vlm_agent.training.data.stream import Item, RowOrder, RowSize, RowStream, Windows, chosen_episodes

WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)
EPISODES = 11
BUDGET = 130


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> ShardDataset:
    """Eleven episodes of one to five steps."""
    folder = tmp_path_factory.mktemp("shards")
    episodes = [tiny.episode(number, tiny.ACTIONS[: 1 + number % 5]) for number in range(EPISODES)]
    return ShardDataset(tiny.write_shards(folder, episodes))


def whole_episodes(count: int) -> list[Item]:
    return [Item(number) for number in range(count)]


def of_lengths(lengths: list[int]) -> list[Item]:
    return [Item(number, Window(0, 0, 1, length)) for number, length in enumerate(lengths)]


def trajectories(shards, seed=0, size=None, grid=tiny.GRID, total=20) -> RowStream:
    order = RowOrder(whole_episodes(EPISODES), RowSize(sentences=2) if size is None else size, seed)
    return RowStream(order, total, Trajectories(shards, SENTENCES, grid), collate)


def packed(shards, seed=0, total=20) -> RowStream:
    """Windows of every episode, packed into rows of a budget."""
    items = [Item(number, window) for number, episode in enumerate(shards) for window in cut(episode)]
    return RowStream(RowOrder(items, RowSize(tokens=BUDGET), seed), total, Trajectories(shards, SENTENCES), collate)


def cut(episode, budget: int = BUDGET) -> list[Window]:
    def length(first: int, supervised: int, last: int) -> int:
        return SENTENCES.length(SENTENCES.segments(episode, first, last, supervised))

    return windows(len(episode), length, budget)


def elements(shards, seed=0, total=20) -> RowStream:
    order = RowOrder(whole_episodes(EPISODES), RowSize(sentences=2), seed)
    return RowStream(order, total, Elements(shards, ElementSentences(SENTENCES), tiny.GRID), collate)


every_stream = pytest.mark.parametrize("make", [trajectories, packed, elements])


def same(one: dict, other: dict) -> bool:
    if one.keys() != other.keys() or one["about"] != other["about"]:
        return False
    return all(np.array_equal(one[name], other[name]) for name in one.keys() - {"about"})


def items_of(order: RowOrder, rows: range) -> list[int]:
    return [item for number in rows for item, _ in order.row(number)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(40, 90), st.integers(0, 3))
def test_a_pass_over_packed_rows_has_every_sentence_once_and_no_row_over_the_budget(lengths, budget, seed):
    order = RowOrder(of_lengths(lengths), RowSize(tokens=budget), seed)
    begin = 0
    for passes in (1, 2, 3):
        end = order.rows_in(passes)
        assert sorted(items_of(order, range(begin, end))) == list(range(len(lengths)))
        assert all(
            sum(lengths[item] for item in items_of(order, range(at, at + 1))) <= budget for at in range(begin, end)
        )
        begin = end


@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_a_pass_over_rows_of_a_number_of_sentences_has_every_sentence_once(size):
    order = RowOrder(whole_episodes(EPISODES), RowSize(sentences=size), 0)
    rows = -(-EPISODES // size)
    passes = [items_of(order, range(turn * rows, (turn + 1) * rows)) for turn in range(3)]
    assert all(sorted(items) == list(range(EPISODES)) for items in passes)
    assert len({tuple(items) for items in passes}) == 3
    assert [order.rows_in(1), order.rows_in(3), order.rows_in(0.5)] == [rows, 3 * rows, -(-rows // 2)]


def test_a_fraction_of_a_pass_has_no_further_row_where_floats_are_inexact():
    order = RowOrder(whole_episodes(10), RowSize(sentences=1), 0)
    assert [order.rows_in(passes) for passes in (0.1, 1.1, 2.3)] == [1, 11, 23]


def test_more_sentences_than_are_packed_together_are_packed_too():
    order = RowOrder(of_lengths([10 + number % 7 for number in range(1300)]), RowSize(tokens=64), 0)
    rows = order.rows_in(1)
    assert sorted(items_of(order, range(rows))) == list(range(1300))
    tokens = sum(item.window.tokens for item in order.items)
    assert tokens / (rows * 64) > 0.9, "little of the budget is left empty"


def test_packed_rows_are_shuffled_beyond_the_sentences_that_are_packed_together():
    """Packing begins with the longest sentence, so in the order of packing the longest of each row would descend."""
    lengths = [10 + number * 37 % 101 for number in range(1300)]
    order = RowOrder(of_lengths(lengths), RowSize(tokens=256), 0)
    rows = [items_of(order, range(number, number + 1)) for number in range(order.rows_in(1))]
    longest = [max(lengths[item] for item in row) for row in rows]
    descents = sum(one >= other for one, other in itertools.pairwise(longest)) / len(rows)
    assert 0.3 < descents < 0.8
    unshuffled = [max(lengths[item] for item in row) for row in order._rows_from(list(range(512)))]
    assert sorted(unshuffled, reverse=True)[:100] == unshuffled[:100], "the order of packing"


def test_every_sentence_of_every_pass_has_randomness_of_its_own():
    order = RowOrder(whole_episodes(EPISODES), RowSize(sentences=2), 0)
    stream = RowStream(order, 2 * order.rows_in(1), lambda item, rng: rng.random(), list)
    drawn = [number for row in range(len(stream)) for number in stream[row]]
    assert len(drawn) == 2 * EPISODES
    assert len(set(drawn)) == len(drawn)


def test_rows_by_length_have_every_sentence_once_and_little_padding():
    lengths = [10 + number * 37 % 101 for number in range(1300)]
    order = RowOrder(of_lengths(lengths), RowSize(sentences=8, by_length=True), 0)
    rows = [items_of(order, range(number, number + 1)) for number in range(order.rows_in(1))]
    assert sorted(item for row in rows for item in row) == list(range(1300))
    padded = sum(max(lengths[item] for item in row) * len(row) for row in rows)
    assert padded < 1.05 * sum(lengths)
    longest = [max(lengths[item] for item in row) for row in rows]
    assert longest != sorted(longest), "rows are shuffled"


def test_a_row_can_be_computed_without_those_before_it():
    forwards, late = (RowOrder(of_lengths([5, 9, 3, 8, 2, 7] * 5), RowSize(tokens=16), 1) for _ in range(2))
    rows = {number: forwards.row(number) for number in range(60)}
    assert all(late.row(number) == rows[number] for number in (59, 3, 30, 0, 58))


def test_sentence_numbers_of_the_stream_are_unique():
    """It seeds the random choices of the sentence."""
    order = RowOrder(of_lengths([5, 9, 3, 8, 2, 7]), RowSize(tokens=16), 1)
    numbers = [place for row in range(order.rows_in(3)) for _, place in order.row(row)]
    assert numbers == list(range(18))


def test_windows_are_arrays_that_make_an_item_on_access_in_the_order_of_the_episodes():
    columns = [np.array(column) for column in ([2, 2, 7, 9], [0, 3, 0, 0], [0, 4, 0, 0], [4, 6, 1, 1], [30, 20, 9, 8])]
    found = Windows.of(columns, [9, 2, 7])
    assert (found.rows.shape, found.rows.dtype) == ((4, 5), np.int64)
    assert list(found) == [
        Item(9, Window(0, 0, 1, 8)),
        Item(2, Window(0, 0, 4, 30)),
        Item(2, Window(3, 4, 6, 20)),
        Item(7, Window(0, 0, 1, 9)),
    ]


def test_rows_of_a_budget_need_lengths():
    for size in (RowSize(tokens=16), RowSize(sentences=2, by_length=True)):
        with pytest.raises(ValueError, match="need to know each sentence's length"):
            RowOrder(whole_episodes(3), size, 0)


@every_stream
def test_the_seed_determines_the_stream(shards, make):
    one, again, other = (make(shards, seed=seed) for seed in (0, 0, 1))
    assert all(same(one[number], again[number]) for number in range(len(one)))
    assert not all(same(one[number], other[number]) for number in range(len(one)))


@every_stream
def test_a_row_does_not_depend_on_what_was_read_before(shards, make):
    forwards, backwards = make(shards), make(shards)
    rows = {number: backwards[number] for number in reversed(range(20))}
    assert all(same(forwards[number], rows[number]) for number in range(20))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("make", [packed, elements])
def test_worker_processes_yield_the_same_rows(shards, make):
    stream = make(shards, total=6)
    workers = {"num_workers": 2, "multiprocessing_context": multiprocessing.get_context("fork")}
    alone, together = (
        list(DataLoader(stream, batch_size=1, collate_fn=itemgetter(0), **options)) for options in ({}, workers)
    )
    assert len(alone) == len(together) == 6
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_together_read_the_rows_of_one_process(shards, ranks):
    """Row k is the same row for every rank."""
    stream = packed(shards, total=12)
    shares = [Subset(packed(shards, total=12), range(rank, 12, ranks)) for rank in range(ranks)]
    for number in range(12):
        assert same(stream[number], shares[number % ranks][number // ranks])


@every_stream
def test_a_stream_survives_pickling(shards, make):
    stream = make(shards)
    stream[0]
    copy = pickle.loads(pickle.dumps(stream))  # noqa: S301
    assert all(same(stream[number], copy[number]) for number in range(len(stream)))


def test_every_action_of_every_episode_is_supervised_once_per_pass(shards):
    stream = packed(shards)
    rows = stream.order.rows_in(1)
    assert len(stream.order.items) > EPISODES, "some episodes take several windows"
    learned = [row["labels"][row["labels"] != IGNORED].tolist() for row in (stream[number] for number in range(rows))]
    assert all(stream[number]["input_ids"].shape[1] <= BUDGET for number in range(rows))
    counted = sum(len(tiny.action_ids(SENTENCES, step.action)) for episode in shards for step in episode.steps)
    assert sum(map(len, learned)) == counted
    assert sum(ids.count(WORDS.eos_token_id) for ids in learned) == sum(len(episode) for episode in shards)


def test_a_window_is_the_sentence_of_its_steps_with_earlier_actions_as_input(shards):
    write = Trajectories(shards, SENTENCES)
    episode = next(index for index in range(EPISODES) if len(shards[index]) == 5)
    sentence = write(Item(episode, Window(1, 3, 5, 0)), None)
    plain = SENTENCES.build(shards[episode], 1, 5)
    assert sentence.input_ids == plain.input_ids
    assert [label for label in sentence.labels if label != IGNORED] == [
        id_ for action in tiny.ACTIONS[3:5] for id_ in tiny.action_ids(SENTENCES, action)
    ]
    assert len(sentence.screens) == 4
    assert all((a == b).all() for a, b in zip(sentence.screens, plain.screens, strict=True))
    assert sentence.about == f"{shards[episode].id} steps 3-4"


def test_a_window_over_all_steps_is_the_whole_episode(shards):
    write = Trajectories(shards, SENTENCES)
    for index, episode in enumerate(shards):
        whole, window = write(Item(index), None), write(Item(index, Window(0, 0, len(episode), 0)), None)
        assert (whole.input_ids, whole.labels, whole.about) == (window.input_ids, window.labels, window.about)


def test_rows_name_their_episodes_and_screens(shards):
    assert {about for number in range(6) for about in trajectories(shards)[number]["about"]} == {
        f"{episode.id} steps 0-{len(episode) - 1}" for episode in shards
    }
    assert all(" screen " in about for about in elements(shards)[0]["about"])


def test_element_labels_are_built_only_for_models_that_use_them(shards):
    assert "element_labels" not in trajectories(shards, grid=None)[0]
    for stream in (trajectories(shards), elements(shards)):
        row = stream[0]
        assert row["element_labels"].shape == (len(row["screens"]), tiny.GRID[0] * tiny.GRID[1])
    assert len(elements(shards)[0]["screens"]) == 2


def test_the_mixture_and_the_limit_choose(shards):
    def chosen(**options) -> list[int]:
        return chosen_episodes(shards, DataRecipe(shards="here", **options))

    assert chosen() == list(range(EPISODES))
    assert chosen(limit=3) == [number * EPISODES // 3 for number in range(3)]
    some = chosen(mixture={"general": 0.5})
    assert 0 < len(some) < EPISODES
    assert some == chosen(mixture={"general": 0.5})
    assert set(chosen(mixture={"general": 0.3})) <= set(some)
    with pytest.raises(RecipeError, match="no episode in split train"):
        chosen(mixture={"general": 0.0})
    with pytest.raises(DatasetError, match=r"data\.mixture names google_app; subsets are .*google_apps"):
        chosen(mixture={"google_app": 0.1})


def test_a_typed_end_mark_does_not_break_a_stream(tmp_path):
    shards = ShardDataset(tiny.write_shards(tmp_path, [tiny.episode(0, (Action.type_text("</s>"),))]))
    order = RowOrder([Item(0)], RowSize(sentences=1), 0)
    (sentence,) = RowStream(order, 1, Trajectories(shards, SENTENCES), collate).sentences(0)
    assert sentence.labels.count(WORDS.eos_token_id) == 1
