"""Prompts carry what is needed: a program that knows the screens and reads the prompts alone, over HTTP, does simulated
tasks with the steps that d_pot remembers, and without memory all but those that need it. Its accuracy says nothing
about planning."""

import json
from collections import defaultdict

import pytest
from helpers.agents.chat_server import serving
from helpers.agents.knowing_planner import KnowingPlanner, know

from vlm_agent.action_languages import language_settings
from vlm_agent.cli import OK, main
from vlm_agent.episodes import Action
from vlm_agent.simulator.demonstrations import simulated_tasks


def done(tmp_path, name: str, modes: list[str], count: int) -> tuple[list, dict[str, list[bool]]]:
    """What is known of each task, and by mode which tasks were done."""
    language = language_settings({"name": name}).build()
    known = [know(task, language) for task in simulated_tasks(count, 0)]
    tasks = defaultdict(list)
    for goal, task in known:
        tasks[goal].append(task)
    success = {}
    with serving(KnowingPlanner(tasks, language.encode(Action.impossible()))) as (url, _):
        for mode in modes:
            path, output = tmp_path / f"{mode}.yaml", tmp_path / mode
            settings = {"agent": "dynamic_planning", "endpoint": url, "model": "m", "mode": mode}
            path.write_text(json.dumps(settings | {"action_language": {"name": name}}))
            command = ["evaluate", "--online", "--agent", str(path), "--tasks", str(count), "--output", str(output)]
            assert main([*command, "--controls", "none"]) == OK
            content = json.loads((output / "online.json").read_text())
            success[mode] = [task["runs"]["trained"]["success"] for task in content["tasks"]]
    return [task for _, task in known], success


def check(known: list, success: dict[str, list[bool]], unsayable: int) -> None:
    assert sum(not task.steps for task in known) == unsayable  # no solution in the action language
    assert success["d_pot"] == [bool(task.steps) for task in known]
    assert success["none"] == [bool(task.steps) and not task.needs_memory for task in known]
    assert all(task.needs_memory for task in known if task.memory)
    assert any(task.needs_memory for task in known)


def test_a_program_that_reads_the_prompts_alone_does_tasks_and_fails_without_memory_where_it_is_needed(tmp_path):
    check(*done(tmp_path, "binned", ["d_pot", "none"], 12), unsayable=0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unsayable"), [("binned", 0), ("element_index", 2)])
def test_the_same_with_thirty_tasks_and_by_numbers_of_elements(tmp_path, name, unsayable):
    """Quick settings are opened from the top edge, and some lists scroll only there: no element has that number."""
    check(*done(tmp_path, name, ["d_pot", "none"], 30), unsayable=unsayable)
