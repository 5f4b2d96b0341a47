"""Tasks: every goal is reachable, splits share no goal, and memory goals need memory."""

from collections import defaultdict

import numpy as np
import pytest

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Step
from vlm_agent.errors import UserError
from vlm_agent.simulator import SPLITS, TEMPLATES, SimulatedPhone, Task, sample_task, split_of

LONGEST = 30


@pytest.fixture(scope="module")
def sampled() -> dict[str, list[Task]]:
    """A few thousand tasks per split."""
    return {
        split: [sample_task(SUBSETS[seed % 5], split, seed) for seed in range(3000 if split == "train" else 1500)]
        for split in SPLITS
    }


def solved(task: Task, pixels: bool = False, size=(448, 208)) -> tuple[SimulatedPhone, tuple[Step, ...]]:
    phone = SimulatedPhone(task.seed, size)
    task.set_up(phone)
    return phone, task.solve(phone, pixels)


@pytest.mark.parametrize("split", SPLITS)
def test_the_expert_reaches_every_kind_of_goal(sampled, split):
    """Each at three sizes, one in each split."""
    sizes = ((448, 208), (600, 270), (333, 777))
    tasks = {task.template: task for task in sampled[split]}
    for number, template in enumerate(TEMPLATES, SPLITS.index(split)):
        task = tasks[template.name]
        phone = SimulatedPhone(task.seed, sizes[number % 3])
        task.set_up(phone)
        assert not task.reached(phone), task
        steps = task.solve(phone, pixels=False)
        assert task.reached(phone), task
        assert len(steps) <= LONGEST, task
        assert steps[-1].action.is_status
        assert not any(step.action.is_status for step in steps[:-1])


def test_no_instance_is_in_two_splits(sampled):
    instances = {split: {task.instance for task in tasks} for split, tasks in sampled.items()}
    assert all(split_of(instance) == split for split, members in instances.items() for instance in members)
    assert not instances["train"] & instances["test"]
    assert not instances["train"] & instances["validation"]
    assert not instances["validation"] & instances["test"]


def test_the_words_of_held_out_goals_occur_in_training(sampled):
    words = {
        split: {word.strip(".,:?") for task in tasks for word in task.goal.lower().split()}
        for split, tasks in sampled.items()
    }
    names = {word for word in words["test"] - words["train"] if not word[0].isdigit()}
    assert len(names) <= 2, names
    assert len(words["train"]) < 600


def test_a_task_is_always_solved_with_the_same_steps():
    for seed in range(6):
        runs = [solved(sample_task(SUBSETS[seed % 5], "train", seed), pixels=True)[1] for _ in range(2)]
        assert [step.action for step in runs[0]] == [step.action for step in runs[1]]
        for first, second in zip(*runs, strict=True):
            np.testing.assert_array_equal(first.screenshot, second.screenshot)
            assert first.elements == second.elements


MEMORY = {
    "turn_off_and_on": "google_apps",
    "there_and_back": "google_apps",
    "reinstall": "install",
    "empty_then_add": "web_shopping",
    "add_two": "web_shopping",
}


@pytest.mark.parametrize("template", MEMORY)
def test_a_memory_goal_needs_different_actions_on_the_same_screen(sampled, template):
    """Two steps of one episode have the same pixels but different correct actions."""
    for task in [task for task in sampled["train"] if task.template == template][:5]:
        actions = defaultdict(set)
        for step in solved(task, pixels=True)[1]:
            places = {
                element.box
                for element in step.elements
                if step.action.is_tap and element.contains(step.action.touch_yx)
            }
            actions[step.screenshot.tobytes()].add((step.action.name, step.action.text, frozenset(places)))
        if any(len(right) > 1 for right in actions.values()):
            return
    pytest.fail(f"no episode of {template} has one screen with two right actions")


@pytest.mark.parametrize("template", ["look_up_note", "send_alarm_label"])
def test_the_text_to_type_was_visible_only_on_an_earlier_screen(sampled, template):
    for task in [task for task in sampled["train"] if task.template == template][:5]:
        steps = solved(task)[1]
        at = next(index for index, step in enumerate(steps) if step.action.text)
        before, word = steps[: at - 1], steps[at].action.text.split()[-1].capitalize()
        assert word not in task.goal.split()
        assert any(element.text.capitalize() == word for step in before for element in step.elements)


def test_a_screen_that_is_too_small_for_the_expert_is_an_error_that_names_its_size():
    task = sample_task("install", "train", 9)
    message = r"on a screen of 112x64 pixels the expert does not reach 'List apps like Outlet .* choose a larger size"
    with pytest.raises(DeviceError, match=message):
        solved(task, size=(112, 64))
    phone, _ = solved(task)
    assert task.reached(phone)


def test_an_unknown_split_or_subset_is_refused():
    with pytest.raises(UserError, match="'games'"):
        sample_task("games", "train", 0)
    with pytest.raises(UserError, match="'dev'"):
        sample_task("general", "dev", 0)
