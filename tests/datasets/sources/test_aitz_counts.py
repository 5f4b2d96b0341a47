"""A download of Android in the Zoo has the published number of episodes, screens, instructions and test steps.

AITZ_DIR=… python -m pytest tests/datasets/sources/test_aitz_counts.py
"""

import json
import os
from pathlib import Path

import pytest
from helpers.data.aitz_counts import (
    PUBLISHED,
    PUBLISHED_GOALS,
    PUBLISHED_TEST_ACTIONS,
    count,
    differences_from_published,
)

from vlm_agent.datasets.sources.aitz import SUBSETS
from vlm_agent.episodes import Action
from vlm_agent.evaluation.report.published import published_tables

UP, DOWN = (0.8, 0.5), (0.2, 0.5)
ACTIONS = [
    Action.tap(0.5, 0.5),
    Action.swipe(UP, DOWN),
    Action.type_text("a"),
    *map(Action.press, ("back", "home", "enter")),
    Action.complete(),
]
MINI = {("train", "general"): (2, 14), ("test", "single"): (1, 7)}
MINI_ACTIONS = {"CLICK": 1, "SCROLL": 1, "TYPE": 1, "PRESS": 3, "STOP": 1}


def write(folder: Path, split: str, subset: str, number: int, goal: str) -> Path:
    """An episode of one step of each action, without PNGs."""
    name = f"{subset.upper()}-{number}"
    path = folder / split / subset / name / f"{name}.json"
    path.parent.mkdir(parents=True)
    steps = [
        {
            "episode_id": str(number),
            "episode_length": len(ACTIONS),
            "step_id": step,
            "instruction": goal,
            "image_path": f"{step}.png",
            "ui_positions": "[]",
            "ui_text": "[]",
            "ui_types": "[]",
            "result_action_type": int(action.kind),
            "result_action_text": action.text,
            "result_touch_yx": json.dumps(action.touch_yx),
            "result_lift_yx": json.dumps(action.lift_yx),
        }
        for step, action in enumerate(ACTIONS)
    ]
    path.write_text(json.dumps(steps))
    return path


@pytest.fixture
def mini(tmp_path) -> Path:
    write(tmp_path, "train", "general", 1, "one")
    write(tmp_path, "train", "general", 2, "two")
    write(tmp_path, "test", "single", 3, "three")
    (tmp_path / "notes.json").write_text("not an episode")
    return tmp_path


def differences(folder: Path) -> list[str]:
    return differences_from_published(count(folder), MINI, MINI_ACTIONS, 3)


def test_a_set_with_the_expected_counts_has_no_differences(mini):
    assert differences(mini) == []


def test_every_published_count_is_missed_by_another_set(mini):
    lines = differences_from_published(count(mini))
    assert len(lines) == len(PUBLISHED) + len(MINI) - 1 + len(PUBLISHED_TEST_ACTIONS) + 1
    assert "test, general: 0 episodes and 0 screens, expected 156 and 1202" in lines
    assert "test, single: 1 episodes and 7 screens, expected 0 and 0" in lines
    assert "PRESS: 3 test steps, expected 383" in lines
    assert "3 different instructions, expected 2504" in lines


def test_a_missing_episode_a_shorter_one_and_another_action_are_differences(mini):
    path = next(mini.glob("test/*/*/*.json"))
    steps = json.loads(path.read_text())
    path.write_text(json.dumps(steps[:-1]))
    assert differences(mini) == [
        "test, single: 1 episodes and 6 screens, expected 1 and 7",
        "STOP: 0 test steps, expected 1",
    ]
    steps[0] |= {"result_lift_yx": "[0.9, 0.5]"}
    path.write_text(json.dumps(steps))
    assert differences(mini) == ["CLICK: 0 test steps, expected 1", "SCROLL: 2 test steps, expected 1"]
    path.unlink()
    assert "test, single: 0 episodes and 0 screens, expected 1 and 7" in differences(mini)


def test_the_same_goal_twice_and_unreadable_steps_are_differences(mini):
    write(mini, "train", "single", 4, "one")
    assert differences(mini) == ["train, single: 1 episodes and 7 screens, expected 0 and 0"]
    path = write(mini, "train", "single", 5, "five")
    path.write_text('[{"episode_id": "5"}, 7]')
    lines = differences(mini)
    assert len(lines) == 3 and "step 0: missing key episode_length" in lines[0] and "step 1: the step is 7" in lines[1]


def test_the_published_counts_add_up():
    totals = {
        split: tuple(map(sum, zip(*(PUBLISHED[place] for place in PUBLISHED if place[0] == split), strict=True)))
        for split in ("train", "test")
    }
    assert totals == {"train": (1998, 13919), "test": (506, 4724)}
    assert sum(PUBLISHED_TEST_ACTIONS.values()) == 4724
    assert sum(episodes for episodes, _ in PUBLISHED.values()) == PUBLISHED_GOALS
    assert {subset for _, subset in PUBLISHED} == set(SUBSETS)


def shares(steps: int, cells: list[float]) -> int:
    """The number of cells, in percent with two decimals, that are shares of so many steps."""
    return sum(
        any(abs(round(100 * part / steps, 2) - cell) < 1e-6 for part in _near(steps * cell / 100)) for cell in cells
    )


def _near(value: float) -> tuple[int, int]:
    return int(value), int(value) + 1


def test_the_test_steps_by_kind_are_those_that_the_published_percentages_allow():
    (table,) = [table for table in published_tables() if table.title == "AitZ, its test episodes"]

    def cells(*columns: str) -> list[float]:
        return [row.values[table.columns.index(column)] for row in table.rows for column in columns]

    for kind, values in {
        "SCROLL": cells("scroll"),
        "TYPE": cells("type type", "type"),
        "PRESS": cells("press"),
        "STOP": cells("stop"),
    }.items():
        fitting = (steps for steps in range(50, 4724) if shares(steps, values) == len(values))
        assert next(fitting) == PUBLISHED_TEST_ACTIONS[kind]
    clicks = cells("click type", "click")
    assert shares(PUBLISHED_TEST_ACTIONS["CLICK"], clicks) == len(clicks) - 4, "four cells are off by 0.01"


def test_the_download_has_the_published_counts():
    if "AITZ_DIR" not in os.environ:
        pytest.skip("real data is not at AITZ_DIR, which is not set")
    assert differences_from_published(count(Path(os.environ["AITZ_DIR"]))) == []
