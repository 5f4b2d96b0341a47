"""Every step of every episode has one prediction, or the gap is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.evaluation.gold_steps import episode as episode_of
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.scoring.judged import check_steps, judge_steps

GOLD = episode_of("e1", "single", [Action.tap(0.1, 0.2), Action.type_text("käse\n"), Action.complete()])

FILE = Path("p.parquet")

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4), st.integers(1, 4)), max_size=12)


def check(rows):
    """`rows` are (episode, step, length)."""
    numbers = list(dict.fromkeys(episode for episode, _, _ in rows))
    episode, step, length = (np.array(column, np.int64) for column in (*zip(*rows, strict=True),) or ((), (), ()))
    position = np.array([numbers.index(number) for number in episode], np.int64)
    check_steps([f"e{number}" for number in numbers], position, np.zeros(len(rows)), length, step)


@settings(max_examples=300, deadline=None)
@given(rows)
def test_only_complete_episodes_pass(rows):
    by_episode = {}
    for episode, step, length in rows:
        by_episode.setdefault(episode, []).append((step, length))
    whole = all(
        len({length for _, length in found}) == 1 and sorted(step for step, _ in found) == list(range(found[0][1]))
        for found in by_episode.values()
    )
    if whole:
        check(rows)
    else:
        with pytest.raises(DatasetError, match="episode e"):
            check(rows)


def test_a_huge_episode_length_is_only_a_missing_step():
    with pytest.raises(DatasetError, match=r"episode e0, \d+ steps: no prediction of step 1, 2, .* …;"):
        check([(0, 0, 2**31 - 1)])


def test_a_missing_step_is_named():
    with pytest.raises(DatasetError, match="episode e1, 3 steps: no prediction of step 1;"):
        judge_steps([GOLD[0], GOLD[2]])


def test_a_step_predicted_twice_is_named():
    with pytest.raises(DatasetError, match="episode e1, 3 steps: step 2 is predicted twice"):
        judge_steps([*GOLD, GOLD[2]])


def test_a_missing_episode_is_named():
    judge_steps(GOLD).check_episodes(["e1"], FILE)
    with pytest.raises(DatasetError, match=r"p\.parquet: no prediction of 2 episodes, the first e2; move the file"):
        judge_steps(GOLD).check_episodes(["e1", "e2", "e3"], FILE)


def test_a_surplus_episode_is_named():
    more = [*GOLD, *(replace(row, episode_id="e2") for row in GOLD)]
    with pytest.raises(DatasetError, match=r"p\.parquet: surplus predictions of 1 episodes, the first e2; move the"):
        judge_steps(more).check_episodes(["e1"], FILE)


def test_one_episode_has_one_subset():
    with pytest.raises(DatasetError, match="episode e1 occurs with two subsets"):
        judge_steps([GOLD[0], replace(GOLD[1], subset="general"), GOLD[2]])
