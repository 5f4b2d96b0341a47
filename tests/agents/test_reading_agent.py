"""Elements that are read from pixels: any agent has them, in place of those of the phone or the data set."""

import json
import pickle
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.understood import understood
from rich.console import Console

from vlm_agent.agents import Agent, Answer, Asked, demonstrated, read_screens
from vlm_agent.agents.controls import CONTROLS, controlled
from vlm_agent.agents.read_screens import ReadingAgent, ScreenReader, prepare_read, readers_identity
from vlm_agent.agents.scripted import ScriptedSettings
from vlm_agent.agents.vision_tasker import VisionTaskerSettings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Action, Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.evaluation.about import READ_ELEMENTS, elements_fact
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.screens.understand import Readers

EPISODE = tiny.episode(1)
WITHOUT_MODELS = {"text": "none", "widgets": "edges", "icons": "none"}


@pytest.fixture
def read(monkeypatch):
    """The pictures that were read; each has one element, whose text is the first pixel."""
    pictures = []

    def first_pixel(pixels, readers):
        pictures.append(pixels)
        return understood(f"read {pixels[0, 0, 0]}", size=pixels.shape[:2])

    ScreenReader.of.cache_clear()
    monkeypatch.setattr(read_screens, "understand", first_pixel)
    return pictures


@dataclass(frozen=True)
class Watching(Agent):
    """Keeps the elements of all screens that it sees."""

    seen: list = field(default_factory=list)

    def act(self, goal, history, screen):
        self.seen.append([[e.text for e in one.elements] for one in (*(turn.screen for turn in history), screen)])
        return Answer("", Action.complete())


def texts(episode) -> list[list[str]]:
    return [[f"read {step.screenshot[0, 0, 0]}"] for step in episode.steps]


def test_current_and_earlier_screens_have_the_elements_that_are_read(read):
    watching = Watching()
    ours = ReadingAgent(watching, ScreenReader(Readers()))
    ours.act("goal", demonstrated(EPISODE, 2), recorded_screen(EPISODE, 2))
    assert watching.seen == [texts(EPISODE)[:3]]
    ours.answer_episodes([EPISODE])
    assert sorted(watching.seen[1:], key=len) == [texts(EPISODE)[: n + 1] for n in range(5)]
    assert len(read) == 5  # each picture once


def test_phones_at_once_are_asked_about_the_elements_that_are_read(read):
    class Together:
        def act(self, asked):
            return [watching.act(*one) for one in asked]

    class Batched(Watching):
        def together(self):
            return Together()

    watching = Batched()
    together = ReadingAgent(watching, ScreenReader(Readers())).together()
    together.act([Asked("goal", demonstrated(EPISODE, n), recorded_screen(EPISODE, n)) for n in (0, 2)])
    assert watching.seen == [texts(EPISODE)[:1], texts(EPISODE)[:3]]
    assert ReadingAgent(Watching(), ScreenReader(Readers())).together() is None


def test_a_screen_without_pixels_has_no_elements(read):
    assert ScreenReader(Readers()).screen(Screen(None, tiny.ELEMENTS)).elements is None


def test_from_grey_screens_nothing_of_the_screen_is_read(read):
    watching = Watching()
    controlled(ReadingAgent(watching, ScreenReader(Readers())), CONTROLS["grey_screens"]).act(
        "goal", [], recorded_screen(EPISODE, 0)
    )
    assert watching.seen == [[["read 128"]]]


def test_what_the_agent_can_do_beyond_answering_is_kept(tmp_path, read):
    prompted = VisionTaskerSettings(endpoint="http://a:1", model="m", screen="html", calls=str(tmp_path)).load()
    ours = ReadingAgent(prompted, ScreenReader(Readers()))
    assert ReadingAgent(Watching(), ours.reader).estimate(lambda: [EPISODE], 10) is None
    assert ours.estimate(lambda: [EPISODE], 10).startswith("Estimate for 10 steps, from 5: 10 calls")
    assert len(read) == 5
    assert ours.spending() == prompted.spending()
    ours.stop()
    assert prompted.calls._stopped.is_set()
    preparation = pickle.loads(pickle.dumps(partial(prepare_read, ScreenReader.of(Readers()), len)))  # noqa: S301
    assert preparation(EPISODE) == 5


def test_an_evaluation_with_read_elements_is_another_evaluation_and_its_report_says_so(tmp_path, read, capsys):
    shards = tiny.write_shards(tmp_path / "shards", [EPISODE], "test")
    path, output, prompts = tmp_path / "agent.yaml", tmp_path / "out", []

    def answer(number, body):
        prompts.append(body["messages"][1]["content"])
        return Reply('{"action": "tap", "element": 0}')

    with serving(answer) as (url, _):
        settings = {"agent": "vision_tasker", "screen": "html", "endpoint": url, "model": "m"}
        path.write_text(json.dumps(settings | {"readers": WITHOUT_MODELS}))
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        assert main([*command, "--controls", "none", "--elements", "read"]) == OK
        assert main([*command, "--controls", "none"]) == FAILED
    assert all("read " in prompt and "Clear cart" not in prompt for prompt in prompts)
    assert "elements_read_by" in capsys.readouterr().err
    fact = "read from pixels (text: none, widgets: edges, icons: none)"
    assert fact in " ".join((output / "report.html").read_text().split())
    rows = read_predictions(output / "predictions.parquet")
    assert {row.box for row in rows} == {understood("x").parts[0].box}
    assert all(row.elements == tuple(replace(e) for e in rows[0].elements) and len(row.elements) == 3 for row in rows)
    assert main(["evaluate", "--finish", "--output", str(output)]) == OK


def test_chats_have_the_elements_that_are_read(tmp_path, read):
    shards = tiny.write_shards(tmp_path / "shards", [EPISODE], "train")
    path = tmp_path / "agent.yaml"
    settings = {"agent": "vision_tasker", "screen": "html", "endpoint": "http://a:1", "model": "m"}
    path.write_text(json.dumps(settings | {"readers": WITHOUT_MODELS}))
    prompts = {}
    for elements in ("read", "phone"):
        output = tmp_path / f"{elements}.jsonl"
        command = ["chats", str(shards), "--agent", str(path), "--elements", elements, "--output", str(output)]
        assert main(command) == OK
        chats = [json.loads(line)["messages"] for line in output.read_text().splitlines()]
        prompts[elements] = [chat[1]["content"] for chat in chats]
    assert prompts["read"] and all("read " in one and "Clear cart" not in one for one in prompts["read"])
    assert prompts["phone"] and all("read " not in one and "Clear cart" in one for one in prompts["phone"])


def test_gold_feedback_is_by_the_elements_of_the_data_set(read):
    judged = []

    @dataclass(frozen=True)
    class Asking(Watching):
        judge: object = None

        def judged_by(self, judge):
            return replace(self, judge=judge)

        def answer_episodes(self, episodes):
            return [[Answer(str(self.judge(step.action, step)), None) for step in one.steps] for one in episodes]

    def judge(action, step):
        judged.append(step)
        return True

    answers = ReadingAgent(Asking(), ScreenReader(Readers())).judged_by(judge).answer_episodes([EPISODE])
    assert [answer.text for answer in answers[0]] == ["True"] * 5
    assert [step.elements for step in judged] == [step.elements for step in EPISODE.steps]


def test_readers_from_files_count_by_their_content(tmp_path):
    file, folder = tmp_path / "widgets.onnx", tmp_path / "clip"
    folder.mkdir()
    readers = Readers(widgets=f"onnx:{file}", icons=f"clip:{folder}")
    with pytest.raises(UserError, match=r"widgets\.onnx does not exist"):
        readers_identity(readers)
    found = []
    for widgets, icons in ((b"1", b"1"), (b"2", b"1"), (b"2", b"2")):
        file.write_bytes(widgets)
        (folder / "model.safetensors").write_bytes(icons)
        found.append(readers_identity(readers))
    assert found[0] != found[1] != found[2] and found[2] == readers_identity(readers)
    assert f"widgets: onnx:{file}" in elements_fact({READ_ELEMENTS: found[0]})["elements of screens"]
    assert "files" not in readers_identity(Readers())


def test_the_classes_beside_a_detector_count_by_their_content(tmp_path):
    file, classes = tmp_path / "widgets.bin", tmp_path / "widgets.yaml"
    file.write_bytes(b"1")
    found = [readers_identity(Readers(widgets=f"onnx:{file}"))["files"]]
    for kind in ("button", "null"):
        classes.write_text(f"names: [Icon]\nkinds: {{Icon: {kind}}}\n")
        found.append(readers_identity(Readers(widgets=f"onnx:{file}"))["files"])
    assert found[0] != found[1] != found[2] != found[0]


def test_online_the_trace_of_the_agent_has_read_elements_and_the_experts_those_of_the_phone(tmp_path, read):
    settings, output = ScriptedSettings(actions=["press home", "complete"]), tmp_path
    console = Console(file=StringIO(), width=100)
    content = evaluate_online(settings, output, console, tasks=1, controls=False, readers=Readers())
    trace = read_trace(output / "trained" / "00000")
    assert [[e.text[:5] for e in step.elements] for step in trace.steps] == [["read "]] * 2
    assert len(read_trace(output / "expert" / "00000").steps[0].elements) > 1
    assert content["about"]["elements_read_by"]["widgets"] == Readers().widgets
    assert "elements of screens: read from pixels" in console.file.getvalue()
