"""A new kind of agent needs a settings class and an entry of AGENTS; every command then supports it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import tiny
from helpers.agents.knowing_agent import write_shards
from helpers.models.tiny_encoder import write_encoder
from helpers.runs import auto_ui_run

from vlm_agent.agents import AGENTS, Agent, AgentSettings, Answer, Turn, Usage
from vlm_agent.agents.controls import CONTROLS, controls_of
from vlm_agent.agents.loading import agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Action, Screen
from vlm_agent.evaluation.offline import parts
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.files import read_checked


@dataclass
class Call:
    """One call of `act`."""

    grey: bool
    elements: int
    activity: str
    answers: list[str | None]


@dataclass
class DummyAgent(Agent):
    """Taps the element with index `element`, then declares the goal complete."""

    element: int
    calls: list[Call] = field(default_factory=list)

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        answers = [None if turn.answer is None else turn.answer.text for turn in history]
        elements = screen.elements or ()
        self.calls.append(Call(bool((screen.pixels == 128).all()), len(elements), screen.activity, answers))
        usage = Usage(tokens_read=len(goal), tokens_written=1, calls=2, seconds=0.5)
        if answers or len(elements) <= self.element:
            return Answer("done", Action.complete(), {"plan": "done"}, usage=usage)
        return Answer(f"open {elements[self.element].name}", Action.tap(*elements[self.element].centre_yx), usage=usage)


class DummySettings(AgentSettings):
    """`element`: the index of the element to tap."""

    LOADED: ClassVar[list[DummyAgent]] = []

    agent: str = "dummy"
    element: int = 0

    def load(self) -> Agent:
        self.LOADED.append(DummyAgent(self.element))
        return self.LOADED[-1]


@pytest.fixture
def loaded(monkeypatch) -> list[DummyAgent]:
    """The dummy agents that a test has loaded."""
    monkeypatch.setitem(AGENTS, "dummy", DummySettings)
    monkeypatch.setattr(DummySettings, "LOADED", [])
    return DummySettings.LOADED


@pytest.fixture
def agent_file(tmp_path) -> str:
    path = tmp_path / "dummy.yaml"
    path.write_text("agent: dummy\nelement: 1\n")
    return str(path)


def test_evaluate(loaded, agent_file, tmp_path):
    shards, output = write_shards(tmp_path / "shards", ["test"], with_elements=True), tmp_path / "out"
    command = ["evaluate", "--agent", agent_file, "--shards", str(shards), "--output", str(output)]
    assert main(command) == OK
    (agent,) = loaded
    steps = [row.step for row in read_predictions(output / "predictions.parquet")]
    own, grey, no_history = (agent.calls[start : start + len(steps)] for start in range(0, 3 * len(steps), len(steps)))
    assert {(call.elements, call.activity) for call in agent.calls} == {(2, "org.shop/.Home")}
    assert [call.grey for call in (*own, *grey, *no_history)] == [number // len(steps) == 1 for number in range(48)]
    assert [call.answers for call in own] == [call.answers for call in grey] == [[None] * step for step in steps]
    assert all(call.answers == [] for call in no_history)
    assert list(read_checked(output / "metrics.json", ""))[:3] == ["trained", *controls_of(())]
    table = pq.read_table(output / "predictions.parquet")
    assert set(table["calls"].to_pylist()) == {2}
    assert set(table["seconds"].to_pylist()) == {0.5}
    assert set(table["from_prefill"].to_pylist()) == {None}
    assert json.loads((output / "plan.json").read_text())["described"]["agent"] == {"agent": "dummy", "element": 1}


def test_evaluate_online(loaded, agent_file, tmp_path):
    output = tmp_path / "out"
    assert main(["evaluate", "--online", "--agent", agent_file, "--tasks", "1", "--output", str(output)]) == OK
    (agent,) = loaded
    content = json.loads((output / "online.json").read_text())
    steps = [row["overall"]["steps"] for row in list(content["runs"].values())[:3]]
    assert content["about"]["agent"] == {"agent": "dummy", "element": 1}
    assert len(agent.calls) == sum(steps)
    assert all(call.elements and call.activity for call in agent.calls)
    own, grey, no_history = agent.calls[:2], agent.calls[2:4], agent.calls[4:]
    assert [len(call.answers) for call in (*own, *grey)] == [0, 1, 0, 1]
    assert own[1].answers[0].startswith("open ")
    assert [call.grey for call in agent.calls] == [False] * 2 + [True] * 2 + [False] * len(no_history)
    assert all(call.answers == [] for call in no_history)
    assert content["runs"]["trained"]["overall"]["cost"]["tokens_written"] == 2


def test_act(loaded, agent_file, tmp_path):
    trace = tmp_path / "trace"
    command = ["act", "--agent", agent_file, "--device", "simulated:general/test/7", "--trace", str(trace)]
    assert main(command) == FAILED  # it declares the goal reached without reaching it
    (agent,) = loaded
    assert [len(call.answers) for call in agent.calls] == [0, 1]
    assert [step.answer for step in read_trace(trace).steps] == [agent.calls[1].answers[0], "done"]
    assert all(call.elements and call.activity for call in agent.calls)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("agent: dumy\n", f"agent 'dumy' is unknown; choose one of {', '.join(sorted([*AGENTS, 'dummy']))}"),
        ("element: 1\n", "agent None is unknown"),
        ("agent: dummy\nelment: 1\n", "unknown key elment; did you mean element?"),
        ("agent: dummy\nelement: one\n", "element: "),
        ("- dummy\n", "must hold keys and values"),
        ("agent: scripted\nactions: [jump]\n", "'jump' is not an action"),
        ("agent: scripted\nactions: [x]\naction_language: {name: qwen25_mobile_use}\n", "needs a screen to be read"),
        ("agent: scripted\nactions: [x]\naction_language: {name: element_index}\n", "needs a screen to be read"),
    ],
)
def test_an_invalid_agent_file_is_an_error_that_names_the_problem(loaded, tmp_path, content, words, capsys):
    path = tmp_path / "agent.yaml"
    path.write_text(content)
    assert main(["evaluate", "--agent", str(path), "--shards", "s", "--output", str(tmp_path / "out")]) == FAILED
    assert words in capsys.readouterr().err
    assert str(path) in words or not loaded


def test_a_kind_of_agent_in_place_of_an_agent_file_is_an_error_with_a_hint(tmp_path, capsys):
    assert main(["evaluate", "--agent", "scripted", "--shards", "s", "--output", str(tmp_path / "out")]) == FAILED
    assert "write a YAML file with `agent: scripted`" in capsys.readouterr().err


def test_an_agent_that_returns_no_answer_is_a_type_error(loaded, agent_file, tmp_path, monkeypatch):
    shards = write_shards(tmp_path / "shards", ["test"])
    monkeypatch.setattr(DummyAgent, "act", lambda *_: None)
    with pytest.raises(TypeError, match=r"DummyAgent\.act must return an Answer, not NoneType"):
        main(["evaluate", "--agent", agent_file, "--shards", str(shards), "--output", str(tmp_path / "out")])


def test_a_missing_agent_file_is_an_error_that_names_it(tmp_path, capsys):
    path = tmp_path / "nowhere.yaml"
    assert main(["act", "--agent", str(path), "--device", "simulated:general/test/7"]) == FAILED
    assert f"{path} cannot be read" in capsys.readouterr().err


def test_failed_steps_are_scored_as_wrong_and_requested_again_by_the_same_command(
    loaded, agent_file, tmp_path, monkeypatch, capsys
):
    """The agent fails at the goal of one episode; parts of other episodes are not predicted again."""
    shards, output = write_shards(tmp_path / "shards", ["test"]), tmp_path / "out"
    command = ["evaluate", "--agent", agent_file, "--shards", str(shards), "--output", str(output)]
    command += ["--controls", "none"]
    monkeypatch.setattr(parts, "EPISODES_PER_PART", 1)
    answer, failing = DummyAgent.act, []

    def fail(agent, goal, history, screen):
        failing.append(goal)
        return (
            Answer("", None, failed="the server is down")
            if goal == failing[0]
            else answer(agent, goal, history, screen)
        )

    with monkeypatch.context() as patch:
        patch.setattr(DummyAgent, "act", fail)
        assert main(command) == FAILED
    count = failing.count(failing[0])
    assert f"could not answer {count} step(s); first error: episode" in capsys.readouterr().err
    rows = read_predictions(output / "predictions.parquet")
    assert [row.goal == failing[0] for row in rows] == [row.text == "" for row in rows]
    lines = json.loads((output / "metrics.json").read_text())["trained"]["about"]["failed_steps"]
    assert len(lines) == count < len(rows) == 16
    assert all(line.endswith(": the server is down") for line in lines)
    assert "counted as wrong; first: episode" in (output / "report.html").read_text()
    assert main(command) == OK
    assert len(loaded[-1].calls) == count
    assert all(row.text for row in read_predictions(output / "predictions.parquet"))
    assert "failed_steps" not in (output / "metrics.json").read_text()
    assert main(command) == OK
    assert len(loaded) == 2  # nothing was left to predict


def test_a_task_of_a_job_array_reports_failed_steps_and_finish_counts_them_as_wrong(
    loaded, agent_file, tmp_path, monkeypatch, capsys
):
    shards, output = write_shards(tmp_path / "shards", ["test"]), tmp_path / "out"
    command = ["evaluate", "--agent", agent_file, "--shards", str(shards), "--output", str(output)]
    command += ["--controls", "none"]
    tasks = [[*command, "--shard-index", str(index), "--shard-count", "2"] for index in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(DummyAgent, "act", lambda *_: Answer("", None, failed="the server is down"))
        assert [main(task) for task in tasks] == [FAILED, OK]  # the second task has no part
    assert "could not answer steps in 1 part(s) of this task" in capsys.readouterr().err
    assert main(["evaluate", "--finish", "--output", str(output)]) == FAILED
    assert "could not answer 16 step(s)" in capsys.readouterr().err
    assert main(tasks[0]) == OK
    assert main(["evaluate", "--finish", "--output", str(output)]) == OK


def test_constrained_decoding_of_an_agent_without_it_is_an_error(loaded, agent_file, tmp_path, capsys):
    words = ["--agent.constrained", "true", "--shards", "s", "--output", str(tmp_path / "out")]
    assert main(["evaluate", "--agent", agent_file, *words]) == FAILED
    assert "unknown key constrained" in capsys.readouterr().err


def test_grey_screens_change_only_the_pixels():
    screen = Screen(np.zeros((4, 2, 3), np.uint8), (), "org.shop/.Home")
    control = CONTROLS["grey_screens"].screen
    assert control is not None
    grey = control(screen)
    assert (grey.pixels == 128).all()
    assert (grey.elements, grey.activity) == ((), "org.shop/.Home")


AGENT_FOLDER = Path(__file__).parents[2] / "eval" / "agents"
AGENT_FILES = sorted(AGENT_FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", AGENT_FILES, ids=lambda path: path.stem)
def test_the_published_agent_files_are_valid(path, tmp_path, monkeypatch):
    settings = agent_settings(str(path))
    if getattr(settings, "references", None):  # shards and encoder are the user's
        own = {"shards": tiny.write_shards(tmp_path / "shards", [tiny.episode()]), "encoder": write_encoder(tmp_path)}
        chosen = settings.references.model_copy(update={key: str(folder) for key, folder in own.items()})
        settings = settings.model_copy(update={"references": chosen})
    if path.stem == "auto_ui":  # its run is the user's
        auto_ui_run.register(monkeypatch)
        monkeypatch.chdir(auto_ui_run.write_run(tmp_path / settings.run).parents[1])
    assert settings.identity()
    assert settings.language.build()
    assert f"--agent eval/agents/{path.name} --shards" in path.read_text(encoding="utf-8")


def test_a_published_agent_file_is_found_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert agent_settings("eval/agents/endpoint.yaml") == agent_settings(str(AGENT_FOLDER / "endpoint.yaml"))


def test_the_name_of_an_embedded_base_is_an_agent():
    by_name, by_file = agent_settings("phone_vlm_tiny"), agent_settings(str(AGENT_FOLDER / "phone_vlm_tiny.yaml"))
    assert by_name.identity() | {"constrained": True} == by_file.identity()
    assert by_name.language.name == "named"
    assert by_name.display_name == "phone_vlm_tiny"
