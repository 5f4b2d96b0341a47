"""studies/vision_tasker/demonstrations: phones on which the expert solves the same tasks, and its paired figures."""

import pytest
from helpers.phones.browser_phone import needs_browser

from studies.vision_tasker.demonstrations.__main__ import nearest, unrelated
from studies.vision_tasker.demonstrations.attempts import EXPERT, Attempt, Player, run_attempts
from studies.vision_tasker.demonstrations.figures import (
    OWN,
    UNRELATED,
    WITHOUT,
    difference,
    figures_of,
    progress,
    task_row,
)
from studies.vision_tasker.demonstrations.phones import PAD, SimulatedPhones
from studies.vision_tasker.demonstrations.settings import SettingsPhones, german, plan_of, seeds_of
from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.devices.browser.tasks import browser_task, make_world
from vlm_agent.episodes import Action
from vlm_agent.files.console import make_console

TASKS = 3
SAME = SimulatedPhones("same phone", TASKS)
OTHERS = (SimulatedPhones("another size", TASKS, PAD), SimulatedPhones("another theme", TASKS, has_other_theme=True))


def done_at_once(arm: str, task: str, goal: str) -> Player:
    return Player(ScriptedAgent((Action.complete(),)))


def attempts(phones, folder, *arms: str) -> list[Attempt]:
    found = [Attempt(phones, arm, number, folder) for number in range(phones.tasks) for arm in (EXPERT, *arms)]
    run_attempts(found, done_at_once, make_console())
    return found


def test_the_expert_does_the_same_tasks_on_a_pad_and_with_another_theme(tmp_path):
    goals = [one.result["goal"] for one in attempts(SAME, tmp_path)]
    for phones in OTHERS:
        found = attempts(phones, tmp_path)
        assert [one.result["goal"] for one in found] == goals
        assert all(one.result["success"] for one in found)
    with SAME.opened() as own, OTHERS[1].opened() as other:
        own_theme, theme = own(0).device.theme, other(0).device.theme
    assert own_theme.dark != theme.dark and own_theme.drawer != theme.drawer


@needs_browser
def test_the_expert_does_a_task_in_the_settings_in_german(tmp_path):
    seeds = seeds_of(1, tested=True)
    (attempt,) = attempts(SettingsPhones("settings in German", seeds, is_translated=True), tmp_path)
    assert attempt.result["success"]
    assert attempt.result["goal"] == browser_task("settings", seeds[0]).goal
    words = german()
    assert f"tap '{words[page_of(seeds[0])]}'" in attempt.result["lines"]


def test_every_text_of_the_settings_is_translated_but_names_of_languages_and_people():
    world, words = make_world(0), german()
    for page in world["pages"]:
        assert {page["title"], page["about"]} <= words.keys()
        for row in page["rows"]:
            assert row["label"] in words or row["label"] == "Bluetooth"
            assert row["key"] == "language" or set(row.get("options", ())) <= words.keys()
    labels = [words.get(row["label"], row["label"]) for page in world["pages"] for row in page["rows"]]
    assert len(set(labels)) == len(labels)


def page_of(seed: int) -> str:
    task = browser_task("settings", seed)
    return dict(plan_of(task, make_world(seed))[:1])["tap"]


def test_no_goal_of_the_settings_is_trained_on_and_tested():
    trained, tested = (
        [browser_task("settings", seed).goal for seed in seeds_of(200, which)] for which in (False, True)
    )
    assert len(trained) == 200 and len(tested) > 10
    assert not set(trained) & set(tested) and len(set(tested)) == len(tested)


def test_an_attempt_is_scored_against_the_expert_and_kept(tmp_path):
    found = attempts(SAME, tmp_path, WITHOUT)
    rows = [task_row(one, None) for one in found if one.arm == WITHOUT]
    assert [row["success"] for row in rows] == [0] * TASKS
    assert all(row["progress"] == 0 and not row["shown its own"] for row in rows)
    assert all(task_row(one, None)["progress"] == 1 for one in found if one.arm == EXPERT)
    expert = found[0].result["lines"]
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    run_attempts([Attempt(SAME, arm, 0, tmp_path) for arm in (EXPERT, WITHOUT)], done_at_once, make_console())
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} and expert


@pytest.mark.parametrize(
    ("done", "share"),
    [
        (["tap 'A'", "swipe up", "tap 'B'"], 1.0),
        (["tap 'A'", "tap 'X'", "tap 'B'"], 2 / 3),
        (["tap 'B'", "tap 'A'"], 1 / 3),
        (["tap 'X'"], 0.0),
        ([], 0.0),
    ],
)
def test_progress_is_the_share_of_the_experts_steps_in_their_order(done, share):
    assert progress(done, ["tap 'A'", "swipe up 3 times", "tap 'B'"]) == pytest.approx(share)


def test_the_unrelated_demonstration_is_never_the_own_one(tmp_path):
    store = Demonstrations(tmp_path / "shown.sqlite")
    goals = ["turn the wifi on", "turn the bluetooth on", "write a mail to Ann"]
    for goal in goals:
        store.add(goal, "", [f"tap '{goal}'"])
    for number in range(20):
        assert nearest(store, goals[0]).goal == goals[0]
        assert unrelated(store, f"task {number}", goals[0]).goal == goals[2]


def row(success: int, share: float = 0.5) -> dict:
    return {"success": success, "reached": success, "progress": share, "shown its own": True}


def test_differences_are_paired_over_tasks():
    with_one, without = [row(1, 0.9)] * 6 + [row(0)] * 4, [row(0)] * 10
    found = difference(with_one, without, "success")
    assert (found["difference"], found["gained"], found["lost"]) == (60.0, 6, 0)
    assert found["McNemar p"] == pytest.approx(2 / 2**6)
    low, high = found["interval"]
    assert 20 < low < 60 < high < 100
    assert difference(without, without, "success") == {
        "difference": 0.0, "interval": None, "gained": 0, "lost": 0, "McNemar p": None
    }  # fmt: skip
    figures = figures_of({WITHOUT: without, OWN: with_one, UNRELATED: without})
    assert figures["arms"][OWN]["progress"] == 74.0
    assert [(one["better"], one["worse"]) for one in figures["differences"][::3]] == [
        (OWN, WITHOUT), (UNRELATED, WITHOUT), (OWN, UNRELATED)
    ]  # fmt: skip
