"""The stream of sentences: every episode once a pass, the same whatever reads it."""

import multiprocessing
import pickle

import numpy as np
import pytest
import tiny
import torch
from torch.utils.data import DataLoader

from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.sentences import IGNORED
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.training.data import ElementStream, SentenceStream, TrajectoryStream, chosen_episodes, collate
from vlm_agent.training.recipe import DataRecipe, RecipeError

WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)
EPISODES = 11


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> ShardDataset:
    """Eleven episodes of one to five steps."""
    folder = tmp_path_factory.mktemp("shards")
    episodes = [tiny.episode(number, tiny.ACTIONS[: 1 + number % 5]) for number in range(EPISODES)]
    return ShardDataset(tiny.write_shards(folder, episodes))


def trajectories(shards, total=3 * EPISODES, batch_size=2, seed=0, grid=tiny.GRID) -> TrajectoryStream:
    return TrajectoryStream(shards, list(range(EPISODES)), total, batch_size, seed, sentences=SENTENCES, grid=grid)


def elements(shards, total=2 * EPISODES, seed=0) -> ElementStream:
    return ElementStream(
        shards, list(range(EPISODES)), total, 2, seed, sentences=ElementSentences(SENTENCES), grid=tiny.GRID
    )


def same(one, other) -> bool:
    return (
        one.input_ids == other.input_ids
        and one.labels == other.labels
        and all(np.array_equal(a, b) for a, b in zip(one.screens, other.screens, strict=True))
        and all(np.array_equal(a, b) for a, b in zip(one.element_labels, other.element_labels, strict=True))
    )


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 16])
def test_every_episode_comes_once_a_pass_and_passes_differ(shards, batch_size):
    stream = SentenceStream(shards, list(range(EPISODES)), 3 * EPISODES, batch_size, 0)
    passes = [[stream.locate(turn * EPISODES + at)[0] for at in range(EPISODES)] for turn in range(3)]
    assert all(sorted(order) == list(range(EPISODES)) for order in passes)
    assert len({tuple(order) for order in passes}) > 1 or batch_size == 16


def test_only_the_chosen_episodes_come(shards):
    stream = SentenceStream(shards, [2, 5, 7], 9, 2, 0)
    assert [sorted(stream.locate(turn * 3 + at)[0] for at in range(3)) for turn in range(3)] == [[2, 5, 7]] * 3


def test_a_seed_decides_everything(shards):
    one, again, other = (trajectories(shards, seed=seed) for seed in (0, 0, 1))
    assert all(same(one[number], again[number]) for number in range(len(one)))
    assert any(one[number].input_ids != other[number].input_ids for number in range(len(one)))
    assert all(same(elements(shards)[number], elements(shards)[number]) for number in range(5))


def test_a_sentence_does_not_depend_on_what_was_read_before(shards):
    forwards, backwards = ({n: stream[n] for n in order} for stream, order in _both_ways(elements, shards))
    assert all(same(forwards[number], backwards[number]) for number in forwards)
    forwards, backwards = ({n: stream[n] for n in order} for stream, order in _both_ways(trajectories, shards))
    assert all(same(forwards[number], backwards[number]) for number in forwards)


def _both_ways(make, shards):
    numbers = range(len(make(shards)))
    return [(make(shards), numbers), (make(shards), reversed(numbers))]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("make", "context"), [(trajectories, "spawn"), (elements, "fork")])
def test_worker_processes_bring_the_same_batches(shards, make, context):
    stream = make(shards, total=8)
    stream[3]  # what a stream keeps for itself must not hinder sending it
    workers = {"num_workers": 1, "multiprocessing_context": multiprocessing.get_context(context)}
    alone, together = (
        list(DataLoader(stream, batch_size=2, collate_fn=collate, **options)) for options in ({}, workers)
    )
    assert all(torch.equal(a[key], b[key]) for a, b in zip(alone, together, strict=True) for key in a)


def test_a_stream_survives_pickling(shards):
    stream = trajectories(shards)
    stream[0]
    copy = pickle.loads(pickle.dumps(stream))  # noqa: S301
    assert all(same(stream[number], copy[number]) for number in range(len(stream)))


def test_episodes_of_like_length_meet(shards):
    stream = SentenceStream(shards, list(range(EPISODES)), EPISODES, 2, 0)
    lengths = [len(shards.screen_sizes[stream.locate(number)[0]]) for number in range(10)]
    spread = [abs(a - b) for a, b in zip(lengths[::2], lengths[1::2], strict=True)]
    assert max(spread) <= 1


def test_element_labels_are_made_only_for_a_model_that_wants_them(shards):
    assert trajectories(shards, grid=None)[0].element_labels == []
    sentence = trajectories(shards)[0]
    assert len(sentence.element_labels) == len(sentence.screens)
    assert len(elements(shards)[0].element_labels) == len(elements(shards)[0].screens) == 1


def test_a_batch_is_padded_on_the_right_without_labels():
    long, short = SENTENCES.build(tiny.episode()), SENTENCES.build(tiny.episode(1), last=1)
    batch = collate([short, long])
    length = len(short.input_ids)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, len(long.input_ids))
    assert batch["input_ids"][0, :length].tolist() == short.input_ids
    assert set(batch["labels"][0, length:].tolist()) == {IGNORED}
    assert batch["screens"].shape == (6, 3, *tiny.SCREEN)
    assert torch.equal(batch["screens"][0], torch.from_numpy(short.screens[0]))
    assert "element_labels" not in batch


def test_batches_hold_like_lengths_in_every_pass_though_passes_end_within_a_batch(tmp_path):
    lengths = [1, 4]
    episodes = [tiny.episode(number, tiny.ACTIONS[: lengths[number % 2]]) for number in range(49)]
    shards = ShardDataset(tiny.write_shards(tmp_path, episodes))
    stream = SentenceStream(shards, list(range(49)), 49 * 4, batch_size=4, seed=0)
    order = [stream.locate(number)[0] for number in range(len(stream))]
    mixed = sum(len({len(shards.screen_sizes[index]) for index in order[at : at + 4]}) > 1 for at in range(0, 196, 4))
    assert mixed <= 12  # the batch in the middle of each stretch, and the one that two passes share
    assert all(sorted(order[at : at + 49]) == list(range(49)) for at in range(0, 196, 49))


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


def test_a_typed_end_mark_does_not_break_a_stream(tmp_path):
    shards = ShardDataset(tiny.write_shards(tmp_path, [tiny.episode(0, (Action.type_text("</s>"),))]))
    stream = TrajectoryStream(shards, [0], 1, 1, 0, sentences=SENTENCES, grid=None)
    assert stream[0].labels.count(WORDS.eos_token_id) == 1
