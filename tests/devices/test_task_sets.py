"""Task sets: one registry of goals that phones can judge, and what is wrong in the file of one."""

import pytest
import yaml

from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.task_sets import SPLITS, TASK_SETS, read_task_set

GOAL = {"goal": "Install Chess", "reset": [["input", "keyevent", "3"]], "judge": ["pm", "path", "org.chess"]}
ADB = {"task_set": "adb", "goals": [GOAL]}


def written(folder, content):
    path = folder / "goals.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize("name", ["simulated", "browser"])
def test_no_goal_is_in_two_splits_and_more_tasks_only_add_some(name):
    task_set = read_task_set(name)
    tasks = {split: task_set.tasks(40, 0, split) for split in SPLITS}
    goals = {split: {task.goal for task in found} for split, found in tasks.items()}
    assert not any(goals[one] & goals[other] for one, other in zip(SPLITS, (*SPLITS[1:], SPLITS[0]), strict=True))
    for split, found in tasks.items():
        assert [task.name for task in task_set.tasks(30, 0, split)] == [task.name for task in found[:30]]
        assert len({task.name for task in found}) == 40
    assert {task.name for task in task_set.tasks(40, 1, "test")}.isdisjoint(task.name for task in tasks["test"])


def test_every_registered_set_has_its_own_name():
    assert {name: kind.model_fields["task_set"].default for name, kind in TASK_SETS.items()} == {
        name: name for name in TASK_SETS
    }


def test_a_file_names_its_set_and_options_take_precedence(tmp_path):
    path = written(tmp_path, {"task_set": "simulated", "size": [896, 416]})
    assert read_task_set(path).size == (896, 416)
    assert read_task_set(path, {"size": (600, 270), "scale": 2}).tasks(1, 0, "test")[0].size == (600, 270)


def test_the_goals_of_a_file_are_its_tasks_in_order(tmp_path):
    task_set = read_task_set(written(tmp_path, ADB | {"goals": [GOAL, GOAL | {"goal": "Go home", "subset": "single"}]}))
    found = task_set.tasks(100, 0, "test")
    assert [(task.name, task.goal, task.subset) for task in found] == [
        ("goals/1", "Install Chess", "general"),
        ("goals/2", "Go home", "single"),
    ]
    assert len(task_set.tasks(1, 0, "test")) == 1
    assert not task_set.allow_purchases
    with pytest.raises(DeviceError, match="no split 'train'; use test"):
        task_set.tasks(1, 0, "train")
    with pytest.raises(DeviceError, match="--seed 3 has no effect on the goals of a file"):
        task_set.tasks(1, 3, "test")


def without(key):
    return ADB | {"goals": [{name: value for name, value in GOAL.items() if name != key}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (without("judge"), r"goals\.0\.judge: Field required"),
        (without("reset"), r"goals\.0\.reset: Field required"),
        (ADB | {"goals": [GOAL | {"judge": "pm path org.chess"}]}, r"goals\.0\.judge: Input should be a valid tuple"),
        (ADB | {"goals": [GOAL | {"judge": []}]}, r"goals\.0\.judge: .* at least 1 item"),
        (ADB | {"goals": [GOAL | {"reset": [["input", 3]]}]}, r"goals\.0\.reset\.0\.1: Input should be a valid string"),
        (ADB | {"goals": [GOAL | {"goal": "a\nb"}]}, r"goals\.0\.goal: must be one line of text"),
        (ADB | {"goals": [GOAL | {"judges": ["true"]}]}, r"unknown key goals\.0\.judges; did you mean goals\.0\.judge"),
        (ADB | {"goals": []}, "goals: .* at least 1 item"),
        (ADB | {"seriall": "a"}, "unknown key seriall; did you mean serial"),
        (ADB | {"split": "tests"}, "split: Input should be 'train', 'validation' or 'test'"),
        ({"goals": [GOAL]}, "task_set is None; use simulated, browser, adb"),
        ({"task_set": "simulate"}, "task_set is 'simulate'; .*mean simulated"),
        ({"task_set": "simulated", "serial": "x"}, "unknown key serial; did you mean"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, content, message):
    with pytest.raises(DeviceError, match=message) as raised:
        read_task_set(written(tmp_path, content))
    assert "goals.yaml" in str(raised.value)


def test_options_of_another_set_and_missing_files_are_refused():
    with pytest.raises(DeviceError, match="browser: unknown key size"):
        read_task_set("browser", {"size": (896, 416)})
    with pytest.raises(DeviceError, match=r"'adb:127\.0\.0\.1:5600' is neither a task set .* the key judge of"):
        read_task_set("adb:127.0.0.1:5600")
