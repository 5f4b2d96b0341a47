"""Online evaluation on other task sets: the judge decides, and a judge that fails is no failure of the agent."""

from io import StringIO

import pytest
import yaml
from helpers import tiny
from helpers.agents.prepared_agent import Prepared
from helpers.phones.browser_phone import needs_browser
from rich.console import Console

from vlm_agent.agents.loading import agent_settings
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.cli import FAILED, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.devices.adb import link
from vlm_agent.devices.errors import DeviceError, RefusedError
from vlm_agent.devices.task_sets import read_task_set
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError
from vlm_agent.evaluation.online import AGENT, AT_ONCE, evaluate_online
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer

OPEN_CLOCK = ScriptedAgent([Action.open_app("Clock"), Action.complete()])


def evaluate(output, agent, task_set, console=None, **options):
    console = Console(file=StringIO(), width=200) if console is None else console
    settings = Prepared(prepared=agent)
    return evaluate_online(settings, output, console, controls=False, task_set=task_set, **options)


@pytest.fixture
def goals(one_adb, tmp_path):
    """A set of goals for a served phone, from the judge of each."""
    with PhoneServer(Handset(SimulatedPhone(7))) as server:

        def goals(*judges, reset=(("input", "keyevent", "3"),)):
            listed = [{"goal": f"Do {judge[0]}", "reset": reset, "judge": judge} for judge in judges]
            path = tmp_path / "goals.yaml"
            path.write_text(yaml.safe_dump({"task_set": "adb", "serial": server.serial, "goals": to_lists(listed)}))
            return read_task_set(str(path))

        goals.phone = server.handset.phone
        yield goals


def to_lists(content):
    if isinstance(content, dict):
        return {key: to_lists(value) for key, value in content.items()}
    return [to_lists(one) for one in content] if isinstance(content, list | tuple) else content


def test_a_phone_over_adb_is_reset_and_judged_by_commands(goals, tmp_path):
    printed = StringIO()
    task_set = goals(["true"], ["false"], ["grep"])
    content = evaluate(tmp_path / "out", OPEN_CLOCK, task_set, Console(file=printed, width=200))
    assert goals.phone.open_history == ["Clock"] * 3
    reached = [task["runs"][AGENT]["reached"] for task in content["tasks"]]
    assert reached == [True, False, None]
    row = content["runs"][AGENT]["overall"]
    assert (row["tasks"], row["unjudged"], row["success"], row["false_completes"]) == (2, 1, 50, 50)
    assert (row["side_effects"], row["expert_steps"], row["steps_over_expert"]) == (None, None, None)
    assert list(content["runs"]) == [AGENT, AT_ONCE]
    assert "tasks whose judge failed, which no score counts: 1" in printed.getvalue()
    again = evaluate(tmp_path / "out", OPEN_CLOCK, task_set)
    assert again == content and goals.phone.open_history == ["Clock"] * 3  # a judge that failed is not asked again


def test_a_judge_that_hangs_scores_nothing(goals, tmp_path, monkeypatch):
    monkeypatch.setattr(link, "LONGEST_SECONDS", -1)  # also for a command that keeps writing
    content = evaluate(tmp_path / "out", ScriptedAgent([Action.complete()]), goals(["echo", "never ends"]))
    assert content["runs"][AGENT]["overall"]["unjudged"] == 1
    assert content["runs"][AGENT]["overall"]["success"] is None


def test_a_reset_that_fails_ends_the_evaluation(goals, tmp_path):
    with pytest.raises(RefusedError, match="the phone failed at `false`"):
        evaluate(tmp_path / "out", OPEN_CLOCK, goals(["true"], reset=[["false"]]))


def test_one_phone_is_not_used_twice_at_once(goals, tmp_path):
    with pytest.raises(DeviceError, match="--workers is 2, and the task set adb has phones for 1 at once"):
        evaluate(tmp_path / "out", OPEN_CLOCK, goals(["true"]), workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["overall", "memory_goals"])
def test_a_subset_is_no_row_that_every_table_has(goals, tmp_path, name):
    task_set = goals(["true"])
    named = task_set.model_copy(update={"goals": (task_set.goals[0].model_copy(update={"subset": name}),)})
    with pytest.raises(DeviceError, match=f"subset {name} of the task set adb is a row of every table; rename it"):
        evaluate(tmp_path / "out", OPEN_CLOCK, named)
    assert not (tmp_path / "out").exists()


def test_the_command_line_names_what_is_wrong_in_a_set(tmp_path, capsys):
    path = tmp_path / "goals.yaml"
    path.write_text("task_set: adb\ngoals: [{goal: Go home, reset: []}]\n")
    words = ["evaluate", "--online", "--agent", "RUN", "--output", str(tmp_path / "out"), "--task-set"]
    assert main([*words, str(path)]) == FAILED
    assert "goals.yaml: goals.0.judge: Field required" in capsys.readouterr().err


@needs_browser
def test_goals_of_the_browser_are_judged_by_its_state(tmp_path):
    content = evaluate(tmp_path / "out", ScriptedAgent([Action.complete()]), read_task_set("browser"), tasks=1)
    outcome = content["tasks"][0]["runs"][AGENT]
    assert (outcome["reached"], outcome["success"], outcome["false_complete"]) == (False, False, True)
    assert content["tasks"][0]["template"] in {"add_to_cart", "add_cheapest", "order", "flip", "choose", "rename"}
    assert content["about"]["task_set"] == "browser"


def test_tasks_of_chosen_templates_are_those_of_the_whole_set_in_its_order(tmp_path):
    path = tmp_path / "held_out.yaml"
    path.write_text("task_set: simulated\ntemplates: [call, message]\n")
    chosen = read_task_set(str(path))
    tasks = chosen.tasks(5, 0, "test")
    whole = read_task_set().tasks(400, 0, "test")
    assert tasks == [task for task in whole if task.template in ("call", "message")][:5]
    assert chosen.tasks(3, 0, "test") == tasks[:3]
    content = evaluate(tmp_path / "out", OPEN_CLOCK, chosen, tasks=3)
    assert [task["task"] for task in content["tasks"]] == [task.name for task in tasks[:3]]
    assert content["about"]["templates"] == ["call", "message"]


def test_an_unknown_template_names_the_nearest():
    with pytest.raises(DeviceError, match=r"templates: 'mesage' is unknown; did you mean message\?"):
        read_task_set("simulated", {"templates": ["mesage"]})


SAMPLED = VlmSettings(run="phone_vlm_tiny", temperature=1.0)


def test_samples_of_a_task_differ_and_do_not_depend_on_the_number_of_phones(tmp_path):
    task_set = read_task_set("simulated", {"samples": 2})
    console = Console(file=StringIO(), width=200)

    def played(phones):
        options = {"tasks": 1, "controls": False, "workers": phones, "task_set": task_set}
        content = evaluate_online(SAMPLED, tmp_path / str(phones), console, **options)
        traces = [read_trace(tmp_path / str(phones) / one["runs"][AGENT]["trace"]) for one in content["tasks"]]
        return content, [[step.answer for step in trace.steps] for trace in traces]

    (content, words), (_, together) = played(1), played(2)
    assert words == together
    assert words[0] != words[1]
    (name,) = {one["task"].partition("#")[0] for one in content["tasks"]}
    assert [one["task"] for one in content["tasks"]] == [f"{name}#1", f"{name}#2"]
    row = content["runs"][AGENT]["overall"]
    assert row["pass_at"][0] == row["success"] <= row["pass_at"][1]
    assert content["runs"]["expert"]["overall"]["pass_at"] == [100, 100]
    assert "pass@1, pass@2, …, %: " in console.file.getvalue()


def test_recorded_steps_are_not_sampled():
    with pytest.raises(UserError, match=r"agent\.temperature is for tasks on phones"):
        SAMPLED.load().answer_episodes([tiny.episode()])


def test_answers_are_sampled_or_constrained():
    with pytest.raises(UserError, match="temperature and constrained exclude each other"):
        agent_settings("phone_vlm_tiny", overrides={"temperature": 1.0, "constrained": True})
