"""The table of agents that began as one: tasks gained and lost, and held-out templates apart."""

import pytest

from studies.simulated_phone.reinforcement import first_deviation, outcomes, rows_of, share, templates
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.environments.play import Tasks
from vlm_agent.episodes import Action
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.online.runs import BASELINES, EXPERT, play
from vlm_agent.files import write_checked

TEMPLATES = ["call", "call", "call", "set_alarm"]


def evaluated(folder, successes: list[bool]) -> dict:
    folder.mkdir()
    runs = [{"success": one, "false_complete": not one, "side_effects": None} for one in successes]
    tasks = [
        {
            "task": f"general/test/{number}",
            "template": template,
            "runs": {AGENT: run | {"trace": "agent"}, "expert": {"trace": "expert"}},
        }
        for number, (template, run) in enumerate(zip(TEMPLATES, runs, strict=True))
    ]
    write_checked(folder / "online.json", {"tasks": tasks})
    return outcomes(folder)


@pytest.fixture
def runs(tmp_path):
    return {
        "start": evaluated(tmp_path / "start", [True, False, False, False]),
        "later": evaluated(tmp_path / "later", [False, True, True, True]),
    }


def test_tasks_are_compared_one_by_one_and_held_out_templates_apart(runs):
    rows = rows_of(runs, {"set_alarm"})
    assert (rows["start"]["gained"], rows["start"]["lost"], rows["start"]["p"]) == (0, 0, None)
    later = rows["later"]
    assert (later["success"], later["false_complete"], later["held_out"]) == ((3, 4), (1, 4), (1, 1))
    assert (later["gained"], later["lost"]) == (3, 1)
    assert later["p"] == pytest.approx(10 / 16)  # one or fewer, or three or more, of four fair coins
    assert share(later["success"]) == "75.0 (30.1–95.4)"


def test_every_template_has_its_tasks_and_the_successes_of_each_agent(runs):
    assert templates(runs).splitlines()[2:] == [
        "call                       3      1      2",
        "set_alarm                  1      0      1",
    ]


def test_agents_with_other_tasks_are_refused(runs):
    _, *rest = runs["later"].items()
    with pytest.raises(SystemExit, match="later has other tasks than start"):
        rows_of(runs | {"later": dict(rest)}, set())


def test_a_failure_begins_where_the_screens_of_agent_and_expert_differ_first(tmp_path):
    task = Tasks().named("general/train/7")
    up, right, *rest = task.solution().actions
    assert (up.direction, right.direction, rest[0].is_tap) == ("up", "right", True)
    left = Action.swipe(right.lift_yx, right.touch_yx)
    for name, actions in (("wrong", [up, left, Action.complete()]), ("early", [up, right, Action.complete()])):
        play(EXPERT, lambda _, actions=actions: ScriptedAgent(actions), task, tmp_path / name)
    play(EXPERT, BASELINES[EXPERT], task, tmp_path / "expert")
    assert first_deviation(tmp_path / "expert", tmp_path / "wrong") == "swipe right, swipe left"
    assert first_deviation(tmp_path / "expert", tmp_path / "early") == "tap, complete"
