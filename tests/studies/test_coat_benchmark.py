"""The arms of studies/coat, its differences, and its reading of thoughts."""

from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import pytest

from studies.ablation.runs import data_of
from studies.coat.arms import FAMILIES, ROWS, run_of
from studies.coat.figures import FIGURES, differences
from studies.coat.thoughts import Thought, description_of, names, shares
from studies.simulated_phone.texts import demonstrations
from vlm_agent.episodes import Action, UiElement
from vlm_agent.recipe.run import read_recipe

OPTIONS = Namespace(steps=None, data=Path("data"), output=Path("out"), limit=5)
SCREEN = (UiElement((0.1, 0.1, 0.1, 0.2), "Clock", "TEXT"), UiElement((0.5, 0.1, 0.1, 0.2), "Store", "TEXT"))
ON_CLOCK = Action.tap(0.15, 0.2)


def _runs(row, **options):
    return [run_of(family, row, 0, Namespace(**vars(OPTIONS) | options)) for family in FAMILIES]


@pytest.mark.parametrize(
    ("row", "read", "learned"),
    [
        ("row 1", (), ()),
        ("row 3", ("result",), ()),
        ("row 9", ("result",), ("think", "action")),
        ("row 10", ("result", "screen"), ("think", "action")),
    ],
)
def test_an_arm_has_the_texts_of_its_row_of_table_5(row, read, learned):
    expected = dict.fromkeys(read, "read") | dict.fromkeys(learned, "learned")
    assert all({name: note.use for name, note in data_of(run).notes.items()} == expected for run in _runs(row))


@pytest.mark.parametrize("family", FAMILIES)
def test_all_rows_share_a_language_but_for_those_in_binned(family):
    languages = {}
    for row in ROWS:
        words = run_of(family, row, 0, OPTIONS).keys
        keys = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)}
        languages[row] = read_recipe(FAMILIES[family].recipe, keys).action_language.name
    assert {languages.pop(row) for row in ROWS if "binned" in row} == {"binned"}
    assert set(languages.values()) == {{"phone_vlm": "named", "auto_ui": "auto_ui"}[family]}


def test_runs_share_a_folder_only_if_their_recipes_and_seeds_are_equal():
    runs = [run for row in ROWS for run in (*_runs(row), *_runs(row, steps=10))]
    assert len({run.folder for run in runs}) == len(runs) == 4 * len(ROWS)
    assert _runs("row 9")[0].folder == _runs("row 9")[0].folder


def test_differences_are_of_one_family_and_have_the_papers_difference_of_goal_progress():
    figures = {
        f"phone_vlm, {row}": {seed: dict.fromkeys(FIGURES, value + seed) for seed in range(3)}
        for row, value in {"row 1": 10, "row 9": 14, "row 1, binned": 3}.items()
    }
    first, second = differences(figures)
    assert (first["family"], first["better"], first["worse"], first["printed"]) == ("phone_vlm", "row 9", "row 1", 7.92)
    assert first["goal progress"] == {"mean": 4, "half": 0, "seeds": 3, "verdict": "holds"}
    assert (second["worse"], second["printed"]) == ("row 1, binned", None)


def test_the_experts_thoughts_name_its_actions_and_rarely_those_of_the_next_step():
    own, next_one = [], []
    for _, steps in demonstrations(12):
        own += [
            (names(step.notes["think"], step.action, step.elements), step.notes["action"])
            == (True, description_of(step.action, step.elements))
            for step in steps
        ]
        next_one += [names(after.notes["think"], step.action, step.elements) for step, after in pairwise(steps)]
    assert all(own)
    assert sum(next_one) < 0.1 * len(next_one)


@pytest.mark.parametrize(
    ("thought", "action", "is_named"),
    [
        ("Clock is here", ON_CLOCK, True),
        ("Store is here", ON_CLOCK, False),
        ("Clock is not here, look down", Action.swipe((0.8, 0.5), (0.2, 0.5)), False),  # it is here
        ("Games is not here, look down", Action.swipe((0.8, 0.5), (0.2, 0.5)), True),
        ("Games is not here, look up", Action.swipe((0.8, 0.5), (0.2, 0.5)), False),
        ("Clock is here", Action.tap(0.9, 0.9), False),  # on no element
        ("Clock is here", Action.wait(), False),
        ("Clock is here", None, False),
        ("", ON_CLOCK, False),
    ],
)
def test_a_thought_names_an_action_if_it_is_a_reason_for_it_on_this_screen(thought, action, is_named):
    assert names(thought, action, SCREEN) is is_named


def _thought(thought_right, action_right, names_it=True):
    return Thought(None, {}, "", names_it, names_it, thought_right, action_right)


def test_shares_of_thoughts_and_actions_are_percent_of_the_steps():
    found = shares([_thought(True, True), _thought(True, False, False), _thought(False, True), _thought(False, False)])
    assert found == {
        "thought names what is done": 75.0,
        "description names what is done": 75.0,
        "thought right": 50.0,
        "action right": 50.0,
        "both right": 25.0,
        "only the thought": 25.0,
        "only the action": 25.0,
    }
