"""Agents do tasks on simulated phones: the same tasks for all, exactly reset, however many at once."""

import json
import shutil
from dataclasses import dataclass, field, replace
from io import StringIO

import numpy as np
import pytest
from helpers import tiny
from helpers.agents.prepared_agent import Prepared
from helpers.phones.replay import replay
from rich.console import Console

from vlm_agent.agents import Agent, Answer, Usage
from vlm_agent.agents.agent import Diagnostics
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.agents.vlm.together import VlmTogether
from vlm_agent.datasets.sources.traces import STEPS, read_trace
from vlm_agent.devices.acting.episode import allowed_steps
from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.online import AGENT, AT_ONCE, EXPERT, evaluate_online
from vlm_agent.evaluation.online import evaluate as evaluating
from vlm_agent.evaluation.online.runs import BASELINES, play
from vlm_agent.files import read_checked
from vlm_agent.files.jobs import Job
from vlm_agent.simulator.demonstrations import simulate_episode, simulated_tasks
from vlm_agent.simulator.task_set import SimulatedTasks


@dataclass
class Tapper(Agent):
    """An agent that taps where the screen is brightest, and keeps count of its answers."""

    answers: list = field(default_factory=list)

    def act(self, goal, history, screen):
        self.answers.append(goal)
        if len(history) > 3:
            return Answer("complete", Action.complete())
        height, width = screen.pixels.shape[:2]
        y, x = np.unravel_index(screen.pixels.sum(axis=2).argmax(), (height, width))
        return Answer("tap", Action.tap(y / height, x / width), usage=Usage(len(history), 1))


def tiny_agent():
    words = tiny.tokenizer()
    return VlmAgent(tiny.model(len(words)), words, tiny.sentences(words), constrained=True)


def evaluate(output, agent=None, tasks=4, **options):
    settings = Prepared(prepared=Tapper() if agent is None else agent)
    return evaluate_online(settings, output, Console(file=StringIO()), tasks=tasks, **{"controls": False} | options)


def without_cost(content):
    for rows in content["runs"].values():
        for row in rows.values():
            del row["cost"]["seconds"], row["cost"]["seconds_a_step"]
    return content


def test_the_expert_does_every_task_and_doing_nothing_does_none(tmp_path):
    scores = evaluate(tmp_path / "out", tasks=25)["runs"]
    assert scores[EXPERT]["overall"]["success"] == 100
    assert scores[EXPERT]["overall"]["steps_over_expert"] == 1
    assert scores[AT_ONCE]["overall"]["success"] == 0
    assert scores[AT_ONCE]["overall"]["steps"] == 1
    assert scores[EXPERT]["overall"]["tasks"] == 25
    assert [scores[run]["overall"]["false_completes"] for run in (EXPERT, AT_ONCE)] == [0, 100]
    assert [scores[run]["overall"]["side_effects"] for run in (EXPERT, AT_ONCE)] == [0, 0]


def test_the_tasks_are_those_of_the_simulated_test_split_in_its_order():
    tasks = simulated_tasks(6, 3)
    demonstrations = [simulate_episode((3 << 32) + index, "test")[0] for index in range(6)]
    assert [task.task.goal for task in tasks] == [episode.goal for episode in demonstrations]
    for task, episode in zip(tasks, demonstrations, strict=True):
        assert str(task.seed) == episode.id
        assert np.array_equal(task.fresh_phone()[0].screenshot(), episode.steps[0].screenshot)
    assert simulated_tasks(9, 3)[:6] == tasks


def test_a_phone_is_reset_exactly():
    for task in simulated_tasks(5, 1):
        phone, goal = task.fresh_phone()
        before = phone.screenshot()
        goal.solve(phone)
        phone.reset()
        goal.set_up(phone)
        assert np.array_equal(phone.screenshot(), before)
        assert not goal.reached(phone)


def test_results_do_not_depend_on_how_many_phones_are_operated_at_once(tmp_path):
    agent = tiny_agent()
    one, two = (
        without_cost(evaluate(tmp_path / str(workers), agent, workers=workers, tasks=3, controls=True))
        for workers in (1, 2)
    )
    assert one == two
    for path in sorted((tmp_path / "1").glob("*/*/screen_*.png")):
        assert path.read_bytes() == (tmp_path / "2" / path.relative_to(tmp_path / "1")).read_bytes()
    assert one["runs"][AGENT]["overall"]["cost"]["tokens_read"] > 0
    assert list(one["runs"]) == [AGENT, "grey_screens", "no_history", EXPERT, AT_ONCE]


def test_phones_at_once_are_the_same_runs_as_one_after_the_other(tmp_path, monkeypatch):
    agent = tiny_agent()
    steps = []
    plain = VlmTogether.act
    monkeypatch.setattr(VlmTogether, "act", lambda self, asked: (steps.append(len(asked)), plain(self, asked))[1])
    together = without_cost(evaluate(tmp_path / "together", agent, workers=10, tasks=25))
    assert steps[0] == 10
    monkeypatch.setattr(VlmAgent, "together", Agent.together)
    assert without_cost(evaluate(tmp_path / "alone", agent, tasks=25)) == together
    for path in sorted((tmp_path / "alone").glob("*/*/*")):
        other = tmp_path / "together" / path.relative_to(tmp_path / "alone")
        if path.suffix == ".png":
            assert path.read_bytes() == other.read_bytes()
        elif path.name == STEPS:
            assert answers_in(path) == answers_in(other)


def answers_in(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["said"], line["tokens"]) for line in lines if "said" in line]


def test_a_replayed_trace_shows_the_same_screens(tmp_path):
    content = evaluate(tmp_path / "out")
    for task in content["tasks"]:
        for outcome in task["runs"].values():
            again = replay(tmp_path / "out" / outcome["trace"])
            assert again.differing == ()
            assert (again.steps, again.reached) == (outcome["steps"], outcome["reached"])


def test_a_replay_reports_different_screens(tmp_path):
    task = simulated_tasks(1, 0)[0]
    play(EXPERT, BASELINES[EXPERT], task, tmp_path / "t")
    (tmp_path / "t" / "screen_001.png").write_bytes((tmp_path / "t" / "screen_000.png").read_bytes())
    assert replay(tmp_path / "t").differing == (1,)


def test_success_needs_the_goal_and_the_right_final_action(tmp_path):
    task = simulated_tasks(1, 0)[0]

    def silent(actions):  # does it all and does not say so
        return BASELINES[EXPERT]((*actions[:-1], Action.press("enter")))

    def wrong(actions):
        return BASELINES[EXPERT]((*actions[:-1], Action.impossible()))

    for player in (silent, wrong):
        result = play("agent", player, task, tmp_path / "t")
        assert (result["reached"], result["success"], result["false_complete"]) == (True, False, False)


def test_with_long_screens_the_agent_sees_pages_whole_and_the_baselines_do_not(tmp_path):
    settings = Action.open_app("Settings")

    class Reader(Agent):
        def act(self, goal, history, screen):
            return Answer("", (settings, Action.complete())[min(len(history), 1)])

    content = evaluate(tmp_path / "out", Reader(), tasks=2, long_screens=True)
    assert content["about"]["long_screens"] is True
    assert content["runs"][EXPERT]["overall"]["success"] == 100
    for run, rows in ((AGENT, True), (EXPERT, False)):
        trace = read_trace(tmp_path / "out" / run / "00000")
        assert any(trace.screen(step).shape[0] > 448 for step in trace.steps) == rows
        assert (trace.heading.task is None) == rows
        assert trace.heading.reached is content["tasks"][0]["runs"][run]["reached"]
    with pytest.raises(DatasetError, match="long_screens"):
        evaluate(tmp_path / "out", Reader(), tasks=2)


def test_an_agent_is_stopped_after_twice_the_experts_steps_and_a_few(tmp_path):
    class Wanderer(Agent):
        def act(self, goal, history, screen):
            return Answer("swipe", Action.swipe((0.9, 0.5), (0.1 + 0.001 * len(history), 0.5)))

    result = play("agent", lambda _: Wanderer(), simulated_tasks(1, 0)[0], tmp_path / "t")
    assert result["reason"] == "step_limit"
    assert result["steps"] == allowed_steps(result["expert_steps"])


def test_answers_beyond_the_models_context_are_counted_and_printed(tmp_path):
    class Overlong(Tapper):
        def act(self, goal, history, screen):
            return replace(super().act(goal, history, screen), diagnostics=Diagnostics(beyond_context=len(history) > 1))

    printed = StringIO()
    content = evaluate_online(
        Prepared(prepared=Overlong()), tmp_path / "out", Console(file=printed, width=300), tasks=2, controls=False
    )
    steps = [task["runs"][AGENT]["steps"] for task in content["tasks"]]
    beyond = sum(steps) - 2 * len(steps)
    assert content["runs"][AGENT]["overall"]["beyond_context"] == beyond > 0
    assert "beyond_context" not in content["runs"][EXPERT]["overall"]
    assert f"answers beyond the model's context: {beyond} of {sum(steps)}, " in printed.getvalue()
    assert "beyond the model's context" not in _printed_without(tmp_path)


def _printed_without(folder):
    printed = StringIO()
    settings = Prepared(prepared=Tapper())
    evaluate_online(settings, folder / "within", Console(file=printed, width=300), tasks=1, controls=False)
    return printed.getvalue()


def test_a_stopped_evaluation_resumes_to_the_same_result(tmp_path, monkeypatch):
    class StoppedError(Exception):
        pass

    played = []

    def failing(run, player, task, folder, *options):
        played.append(folder)
        if len(played) == 6:
            (folder / "screen_000.png").parent.mkdir(parents=True)
            (folder / "screen_000.png").write_bytes(b"half a picture")
            raise StoppedError
        return play(run, player, task, folder, *options)

    agent = Tapper()
    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(evaluating, "play", failing)
        evaluate(tmp_path / "out", agent)
    count = len(agent.answers)
    assert not (tmp_path / "out" / "online.json").exists()
    content = evaluate(tmp_path / "out", agent)
    assert len(agent.answers) == count  # its four tasks were done before
    assert without_cost(content) == without_cost(evaluate(tmp_path / "at once"))


def test_the_result_of_another_task_is_refused_and_repeated_as_the_error_says(tmp_path):
    out = tmp_path / "out"
    content = evaluate(out, tasks=2)
    shutil.copytree(out / AGENT / "00000", out / AGENT / "00001", dirs_exist_ok=True)
    one, other = (content["tasks"][number]["task"] for number in (0, 1))
    with pytest.raises(
        DatasetError, match=f"result.json is of task {one}, and the task here is {other}; remove it and"
    ):
        evaluate(out, tasks=2)
    (out / AGENT / "00001" / "result.json").unlink()
    assert without_cost(evaluate(out, tasks=2)) == without_cost(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beyond_context": None}, "beyond_context"),
        ({"success": True, "reached": None}, "either success, reached and false_complete are null, or none"),
    ],
)
def test_an_edited_result_is_named_and_repeated_as_the_error_says(tmp_path, changes, message):
    out = tmp_path / "out"
    content = evaluate(out, tasks=1)
    path = out / AGENT / "00000" / "result.json"
    edited = {key: value for key, value in read_checked(path, "").items() if changes.get(key, 0) is not None}
    path.write_text(json.dumps(edited | {key: value for key, value in changes.items() if key != "beyond_context"}))
    (out / "online.json").unlink()
    with pytest.raises(DatasetError, match=message) as raised:
        evaluate(out, tasks=1)
    assert "remove it and run the same command again" in str(raised.value)
    path.unlink()
    assert without_cost(evaluate(out, tasks=1)) == without_cost(content)


def test_more_tasks_keep_completed_ones_and_a_complete_evaluation_needs_no_agent(tmp_path):
    agent = Tapper()
    evaluate(tmp_path / "out", agent, tasks=2)
    count = len(agent.answers)
    content = evaluate(tmp_path / "out", agent, tasks=3)
    assert len(agent.answers) == count + content["tasks"][2]["runs"][AGENT]["steps"]
    settings = Prepared(prepared=agent)
    evaluate_online(settings, tmp_path / "out", Console(file=StringIO()), tasks=3, controls=False)
    assert settings.loads == []


@pytest.mark.parametrize(
    ("options", "agent", "named"),
    [({"seed": 1}, "a", "seed was 0, and is 1"), ({}, "b", 'agent.weights was "a", and is "b"')],
)
def test_a_folder_with_another_evaluation_is_refused(tmp_path, options, agent, named):
    evaluate(tmp_path / "out", tasks=1)
    with pytest.raises(DatasetError, match=named):
        evaluate_online(
            Prepared(prepared=Tapper(), weights=agent), tmp_path / "out", Console(), controls=False, **options
        )


def test_a_folder_in_which_no_agent_was_loaded_is_free_for_other_settings(tmp_path):
    class Broken(Prepared):
        def load(self, *arguments):
            raise UserError("its weights are missing")

    with pytest.raises(UserError, match="weights are missing"):
        evaluate_online(Broken(prepared=Tapper(), weights="c"), tmp_path / "out", Console(), tasks=1, controls=False)
    assert evaluate(tmp_path / "out", tasks=1)["about"]["agent"]["weights"] == "a"


def test_a_command_that_waits_for_no_other_leaves_the_number_of_tasks_of_the_other(tmp_path):
    evaluate(tmp_path / "out", tasks=1)
    with Job(tmp_path / "out", "an online evaluation").locked(), pytest.raises(DatasetError, match="another process"):
        evaluate(tmp_path / "out", tasks=3)
    assert json.loads((tmp_path / "out" / "online_tasks.json").read_text()) == {"tasks": 1}


@pytest.mark.parametrize("content", ["{}", "[]", '{"tasks": "many"}', "{"])
def test_a_damaged_number_of_tasks_is_named(tmp_path, content):
    evaluate(tmp_path / "out", tasks=1)
    (tmp_path / "out" / "online_tasks.json").write_text(content)
    with pytest.raises(DatasetError, match=r"online_tasks\.json is damaged .*; remove it"):
        evaluating.read_tasks(tmp_path / "out")


def test_phones_of_another_size_are_another_evaluation(tmp_path):
    content = evaluate(tmp_path / "out", tasks=1, task_set=SimulatedTasks(size=(896, 416)))
    trace = read_trace(tmp_path / "out" / content["tasks"][0]["runs"][AGENT]["trace"])
    assert trace.screen(trace.steps[0]).shape == (896, 416, 3)
    assert content["runs"][EXPERT]["overall"]["success"] == 100
    with pytest.raises(DatasetError, match="size"):
        evaluate(tmp_path / "out", tasks=1)


def test_larger_renderings_show_the_same_phones_and_are_another_evaluation(tmp_path):
    content = evaluate(tmp_path / "out", tasks=1, task_set=SimulatedTasks(scale=2))
    folder = tmp_path / "out" / content["tasks"][0]["runs"][AGENT]["trace"]
    assert read_trace(folder).screen(read_trace(folder).steps[0]).shape == (896, 416, 3)
    assert replay(folder).differing == ()
    plain = evaluate(tmp_path / "plain", tasks=1)
    read = (read_trace(tmp_path / name / content["tasks"][0]["runs"][EXPERT]["trace"]) for name in ("out", "plain"))
    scaled, same = ([(step.action, step.elements) for step in trace.steps] for trace in read)
    assert scaled == same
    assert content["runs"][EXPERT]["overall"]["success"] == plain["runs"][EXPERT]["overall"]["success"] == 100
    with pytest.raises(DatasetError, match="scale"):
        evaluate(tmp_path / "out", tasks=1)
    with pytest.raises(DeviceError, match="scale is 9; it must be from 1 to 8"):
        SimulatedTasks(scale=9)


def test_a_folder_with_other_files_is_not_changed(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DatasetError, match="does not hold an online evaluation"):
        evaluate(tmp_path)


def test_every_task_can_be_found_by_its_address(tmp_path):
    content = evaluate(tmp_path / "out", tasks=2)
    assert content == read_checked(tmp_path / "out" / "online.json", "")
    for task, expected in zip(content["tasks"], simulated_tasks(2, 0), strict=True):
        assert task["task"] == expected.name
        for outcome in task["runs"].values():
            assert read_trace(tmp_path / "out" / outcome["trace"]).heading.task == task["task"]
