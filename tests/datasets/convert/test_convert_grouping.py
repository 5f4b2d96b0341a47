import weakref
from collections import deque
from pathlib import Path
from unittest import mock
from zlib import crc32

import pytest
from helpers.data.conversions import converted
from helpers.data.made_episodes import made_episode, made_screen
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.convert import grouping
from vlm_agent.datasets.convert.grouping import FAULTS, MAX_OPEN, CompleteEpisode, EpisodeGroups
from vlm_agent.datasets.sources import BadRecord, EpisodeStep
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.episodes import Action, Episode, Step, UiElement

FILE = Path("general-00000-of-00001")


def _step(record, episode_id, step_id, length=3, content="", goal="find it"):
    return EpisodeStep(
        file=FILE,
        record=record,
        offset=100 * record,
        fingerprint=crc32(f"{episode_id} {step_id} {content}".encode()),
        episode_id=episode_id,
        subset="general",
        step_id=step_id,
        episode_length=length,
        goal=goal,
        device_type="pixel_4",
        android_api_level=30,
        step=Step(None, Action.complete()),
    )


def _steps(words):
    """`a0 a1/4 b0!`: step 0 of episode a, step 1 of it which states 4 (3 where it names none), and another
    record, with other content, that claims to be step 0 of b."""
    for record, word in enumerate(words.split()):
        place, _, length = word.rstrip("!").partition("/")
        yield _step(record, place[0], int(place[1:]), int(length or 3), "!" if word.endswith("!") else "")


def _group(steps, had=(), size=1):
    """Whole episodes as id → record numbers, bad records as record number → reason, and the faults."""
    groups = EpisodeGroups(had)
    steps = list(steps)
    items = [item for step in steps for item in groups.add(step, step.record, size)] + list(groups.close())
    whole = {item.head.episode_id: item.steps for item in items if isinstance(item, CompleteEpisode)}
    bad = [item for item in items if isinstance(item, BadRecord)]
    assert sorted([*(record for records in whole.values() for record in records), *(item.record for item in bad)]) == [
        step.record for step in steps
    ]
    return whole, {item.record: item.reason for item in bad}, dict(groups.faults)


def _left_out(episode_id, what, records):
    return dict.fromkeys(records, f"episode {episode_id} is discarded: {what}")


def test_well_formed_episodes_are_returned_and_no_fault_is_counted():
    assert _group(_steps("a0 a1 a2 b0/1 c0 c1 c2")) == ({"a": [0, 1, 2], "b": [3], "c": [4, 5, 6]}, {}, {})


def test_no_step_gives_no_episode():
    assert _group([]) == ({}, {}, {})


def test_a_complete_episode_is_returned_when_another_begins_and_the_last_at_the_end():
    groups = EpisodeGroups()
    given = [[item.head.episode_id for item in groups.add(step, None, 1)] for step in _steps("a0 a1 a2 b0 b1 b2")]
    assert given == [[], [], [], ["a"], [], []]
    assert [item.head.episode_id for item in groups.close()] == ["b"]
    assert list(groups.close()) == []


def test_the_head_is_the_first_record_without_its_step():
    groups = EpisodeGroups(())
    first = _step(7, "a", 0, 1, goal="open the settings")
    (*_, episode) = [*groups.add(first, "kept", 1), *groups.close()]
    assert (episode.head.goal, episode.head.record, episode.head.step, episode.steps) == (
        "open the settings",
        7,
        None,
        ["kept"],
    )


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("a0 a1", "only 2 of 3 steps; missing: 2"),
        ("a1 a2", "only 2 of 3 steps; missing: 0"),
        ("a0 a2", "only 2 of 3 steps; missing: 1"),
        ("a2", "only 1 of 3 steps; missing: 0, 1"),
        ("a3/9", "only 1 of 9 steps; missing: 0, 1, 2, 4, 5, …"),
        ("a3/6", "only 1 of 6 steps; missing: 0, 1, 2, 4, 5"),
    ],
)
def test_a_gap_quarantines_its_whole_episode_and_no_other(words, missing):
    whole, bad, faults = _group(_steps(words + " b0/1"))
    count = len(words.split())
    assert whole == {"b": [count]}
    assert bad == _left_out("a", f"it has {missing}", range(count))
    assert faults == {"gap": 1}


def test_later_records_of_a_quarantined_episode_are_quarantined():
    whole, bad, faults = _group(_steps("a0 a0! a1 a2 a0 a1 a2"))
    assert whole == {}
    assert bad == _left_out("a", "records 0 and 1 for step 0 differ", range(7))
    assert faults == {"conflicting_step": 1}


def test_steps_that_disagree_about_the_length_set_the_episode_aside():
    whole, bad, faults = _group(_steps("a0 a1/4 a2 b0/1"))
    assert whole == {"b": [3]}
    assert bad == _left_out("a", "episode_length changes from 3 to 4", range(3))
    assert faults == {"wrong_episode_length": 1}


@pytest.mark.parametrize(("words", "count"), [("a0 a1 a2 a3", 4), ("a3", 1), ("a0 a3 a1 a2", 4)])
def test_a_step_beyond_the_length_quarantines_the_episode(words, count):
    whole, bad, faults = _group(_steps(words))
    assert whole == {}
    assert bad == _left_out("a", "it has a step 3, but episode_length 3", range(count))
    assert faults == {"wrong_episode_length": 1}


@pytest.mark.parametrize("words", ["a0 a1 a1 a2", "a0 a1 a2 a1", "a0 a1 a2 a2 b0/1"])
def test_a_repeated_step_costs_nothing_but_the_repetition(words):
    whole, bad, faults = _group(_steps(words))
    (repetition,) = bad
    number = words.split()[repetition][1]
    assert len(whole["a"]) == 3
    assert bad == {repetition: f"it repeats step {number} of episode a with the same checksum"}
    assert faults == {"repeated_step": 1}


def test_an_episode_with_several_repeated_steps_counts_once():
    whole, bad, faults = _group(_steps("a0 a0 a0 a1 a1 a2"))
    assert whole == {"a": [0, 3, 5]} and list(bad) == [1, 2, 4]
    assert faults == {"repeated_step": 1}


def test_two_records_that_claim_to_be_the_same_step_and_differ_set_the_episode_aside():
    whole, bad, faults = _group(_steps("b0/1 a0 a1 a1! a2"))
    assert whole == {"b": [0]}
    assert bad == _left_out("a", "records 2 and 3 for step 1 differ", range(1, 5))
    assert faults == {"conflicting_step": 1}


def test_interleaved_episodes_are_put_back_together():
    whole, bad, faults = _group(_steps("a0 b0 a1 b1 a2 b2"))
    assert (whole, bad) == ({"a": [0, 2, 4], "b": [1, 3, 5]}, {})
    assert faults == {"interleaved": 2}


def test_only_an_episode_that_was_interrupted_counts_as_interleaved():
    whole, bad, faults = _group(_steps("a0 b0 b1 b2 a1 a2"))
    assert (whole, bad) == ({"b": [1, 2, 3], "a": [0, 4, 5]}, {})
    assert faults == {"interleaved": 1}


def test_steps_out_of_order_are_put_in_order():
    whole, bad, faults = _group(_steps("a2 a0 a1 b0/1"))
    assert (whole, bad) == ({"a": [1, 2, 0], "b": [3]}, {})
    assert faults == {"out_of_order": 1}


def test_a_repeated_episode_id_is_quarantined_and_the_first_episode_is_kept():
    whole, bad, faults = _group(_steps("a0 a1 a2 b0/1 a0! a1! a2!"))
    assert whole == {"a": [0, 1, 2], "b": [3]}
    assert bad == dict.fromkeys([4, 5, 6], "an episode with id a was read before")
    assert faults == {"id_seen_before": 1}


def test_an_episode_id_of_another_file_is_quarantined():
    whole, bad, faults = _group(_steps("a0 a1 a2 b0/1"), had=["a"])
    assert whole == {"b": [3]}
    assert bad == dict.fromkeys(range(3), "an episode with id a was read before")
    assert faults == {"id_seen_before": 1}


@pytest.mark.parametrize("words", ["a1 a2", "a0 a0 a0!", "a2"])
def test_an_id_that_is_met_again_counts_once_whichever_its_steps(words):
    _, bad, faults = _group(_steps(words), had={"a"})
    assert len(bad) == len(words.split())
    assert faults == {"id_seen_before": 1}


def _ids(count):
    return [chr(ord("a") + number) for number in range(count)]


def test_as_many_episodes_as_may_be_open_heal():
    ids = _ids(MAX_OPEN)
    whole, bad, faults = _group(_steps(" ".join(f"{id}{number}" for number in range(3) for id in ids)))
    assert list(whole) == ids and bad == {}
    assert faults == {"interleaved": MAX_OPEN}


def test_one_more_open_episode_closes_the_oldest():
    ids = _ids(MAX_OPEN + 1)
    whole, bad, faults = _group(_steps(" ".join(f"{id}{number}" for number in range(3) for id in ids)))
    assert list(whole) == ids[1:]
    what = f"it has only 1 of 3 steps; missing: 1, 2 when {MAX_OPEN} episodes are open and one more begins"
    assert bad == _left_out("a", what, [0, MAX_OPEN + 1, 2 * MAX_OPEN + 2])
    assert faults == {"gap": 1, "interleaved": MAX_OPEN}


def test_episodes_with_gaps_do_not_block_others():
    words = " ".join(f"{id}0" for id in _ids(20)) + " y0 y1 y2 z0 z1 z2"
    whole, bad, faults = _group(_steps(words))
    assert list(whole) == ["y", "z"] and len(bad) == 20
    assert faults == {"gap": 20}


def test_over_the_memory_limit_the_oldest_episode_is_quarantined():
    with mock.patch.object(grouping, "MAX_OPEN_BYTES", 4 << 20):
        whole, bad, faults = _group(_steps("a0 b0 a1 b1 b2 a2"), size=1 << 20)
        assert whole == {"b": [1, 3, 4]} and len(bad) == 3
        whole, bad, faults = _group(_steps("a0 b0 a1 b1 b2 a2"), size=(1 << 20) + 1)
    assert whole == {"b": [1, 3, 4]}
    what = "it and the other open episodes exceed 4 MiB in memory"
    assert bad == _left_out("a", what, [0, 2, 5])
    assert faults == {"too_large": 1, "interleaved": 1}


@pytest.mark.parametrize("limit", [1 << 20, 3 << 20])
def test_the_texts_of_a_step_count_towards_the_memory_limit(tmp_path, monkeypatch, limit):
    elements = (UiElement((0.0, 0.0, 0.5, 0.5), "x" * 2000, "TEXT"),) * 500
    steps = (Step(made_screen(), Action.press("back"), elements),) * 2
    write_episodes(tmp_path / "in" / FILE, [Episode("a", "general", "go", steps), made_episode("b")])
    monkeypatch.setattr(grouping, "MAX_OPEN_BYTES", limit)
    _, manifest, *_ = converted(tmp_path / "in", output=tmp_path / "out")
    assert manifest["episode_faults"] == ({} if limit > 2 << 20 else {"too_large": 1})


def test_an_episode_completed_beyond_the_memory_limit_is_returned():
    with mock.patch.object(grouping, "MAX_OPEN_BYTES", 2):
        assert _group(_steps("a0 a1 a2 b0/1")) == ({"a": [0, 1, 2], "b": [3]}, {}, {})


def test_an_episode_larger_than_the_memory_limit_is_quarantined():
    with mock.patch.object(grouping, "MAX_OPEN_BYTES", 1):
        whole, bad, faults = _group(_steps("a0 a1 a2 b0/1"))
    assert whole == {"b": [3]} and list(bad) == [0, 1, 2]
    assert faults == {"too_large": 1}


def test_the_position_of_a_bad_record_is_reported():
    groups = EpisodeGroups()
    (bad,) = [*groups.add(_step(5, "a", 1), None, 1), *groups.close()]
    assert (bad.file, bad.record, bad.offset, bad.ends_file) == (FILE, 5, 500, False)


_lengths = st.sampled_from([1, 2, 3, 3, 3, 4])
_record = st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 3), _lengths, st.sampled_from(["", "", "!"]))
_limits = st.tuples(st.integers(1, 4), st.integers(1, 9))


@st.composite
def _mixtures(draw):
    """Whole episodes of which steps are dropped, repeated and moved, with records beside them that fit nowhere."""
    lengths = draw(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 4), max_size=6))
    records = [(id, number, length, "") for id, length in lengths.items() for number in range(length)]
    kept = [record for record in records if draw(st.integers(0, 9)) > 0]
    repeated = draw(st.lists(st.sampled_from(records), max_size=3)) if records else []
    mixed = kept + repeated + draw(st.lists(_record, max_size=3))
    mixed = draw(st.permutations(mixed)) if draw(st.booleans()) else mixed
    return [_step(number, *record) for number, record in enumerate(mixed)]


def _items(steps, sizes, had):
    groups = EpisodeGroups(had)
    items = [item for step, size in zip(steps, sizes, strict=True) for item in groups.add(step, step, size)]
    return [*items, *groups.close()], groups.faults


@settings(deadline=None, max_examples=400)
@given(steps=_mixtures(), data=st.data(), limits=_limits, had=st.sets(st.sampled_from("abc"), max_size=1))
def test_whatever_comes_every_record_is_once_in_a_whole_episode_or_bad(steps, data, limits, had):
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=len(steps), max_size=len(steps)))
    with mock.patch.multiple(grouping, MAX_OPEN=limits[0], MAX_OPEN_BYTES=limits[1]):
        items, faults = _items(steps, sizes, had)
        again, faults_again = _items(steps, sizes, had)
    whole = [item for item in items if isinstance(item, CompleteEpisode)]
    bad = [item for item in items if isinstance(item, BadRecord)]
    used = [step.record for episode in whole for step in episode.steps]
    assert sorted(used + [item.record for item in bad]) == list(range(len(steps)))
    for episode in whole:
        places = [(step.episode_id, step.step_id, step.episode_length) for step in episode.steps]
        id, length = episode.head.episode_id, len(places)
        assert places == [(id, number, length) for number in range(length)] and length == episode.head.episode_length
    ids = [episode.head.episode_id for episode in whole]
    assert len(set(ids)) == len(ids) and not had & set(ids)
    assert (items, faults) == (again, faults_again)
    assert set(faults) <= set(FAULTS) and all(count > 0 for count in faults.values())
    assert bool(bad) <= bool(faults)


@settings(deadline=None, max_examples=100)
@given(lengths=st.lists(st.integers(1, 5), max_size=MAX_OPEN), data=st.data())
def test_few_whole_episodes_heal_in_whatever_order_their_records_come(lengths, data):
    records = [(id, number, length) for id, length in zip(_ids(9), lengths, strict=False) for number in range(length)]
    steps = [_step(number, *record) for number, record in enumerate(data.draw(st.permutations(records)))]
    whole, bad, faults = _group(steps)
    assert {id: len(records) for id, records in whole.items()} == dict(zip(_ids(9), lengths, strict=False))
    assert bad == {} and set(faults) <= {"interleaved", "out_of_order"}


class _Screen:
    """What a test keeps of a step: something whose life can be watched."""


@settings(deadline=None, max_examples=100)
@given(steps=_mixtures(), limits=_limits)
def test_memory_stays_within_the_limits(steps, limits):
    held: dict[weakref.ref, str] = {}
    with mock.patch.multiple(grouping, MAX_OPEN=limits[0], MAX_OPEN_BYTES=limits[1]):
        groups = EpisodeGroups()
        for step in steps:
            screen = _Screen()
            held[weakref.ref(screen)] = step.episode_id
            deque(groups.add(step, screen, 1), maxlen=0)
            del screen
            alive = [id for reference, id in held.items() if reference() is not None]
            assert len(alive) <= limits[1] and len(set(alive)) <= limits[0]
