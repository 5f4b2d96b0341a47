"""The control `grey_screens` of agents that read screens as text."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.controls import CONTROLS, controlled
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.loading import agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.episodes import Action, Episode, UiElement

SHOWN = tiny.episode(1)
AGENTS = {
    **{
        f"planner {name}": {"agent": "dynamic_planning", "mode": name, "screen": "html"}
        | ({"feedback": "own"} if mode.feedback else {})
        for name, mode in MODES.items()
    },
    "planner, both": {"agent": "dynamic_planning", "screen": "both"},
    "planner, numbers in the picture": {"agent": "dynamic_planning", "screen": "picture"},
    **{f"vision_tasker {shown}": {"agent": "vision_tasker", "screen": shown} for shown in ("html", "marks")},
    "coat as text": {"agent": "coat", "elements": "text"},
    "coat as marks": {"agent": "coat", "elements": "marks"},
    "coat, texts of the phone": {"agent": "coat", "texts": "phone"},
    "coat, texts of the model": {"agent": "coat", "texts": "model"},
}


def changed(episode: Episode) -> Episode:
    """The same actions on other screens of the same size."""
    other = (UiElement((0.3, 0.3, 0.2, 0.2), "Elsewhere"),)
    steps = [
        replace(
            step,
            screenshot=np.full_like(step.screenshot, 40 * number),
            elements=other * number,
            activity=f"org.other/.Page{number}",
            notes={"screen": f"another screen {number}", "result": f"another result {number}"},
        )
        for number, step in enumerate(episode.steps)
    ]
    return replace(episode, steps=tuple(steps))


def reply(number: int, body: dict) -> Reply:
    """Whatever is asked, something that can be read."""
    text = json.dumps(body["messages"][0])
    if '\\\\"right\\\\"' in text or '\\"right\\"' in text:
        return Reply('{"right": false, "reason": "no"}')
    if "plan" in text:
        return Reply('{"plan": "1. open it", "step": "open it"}')
    return Reply('Thought: done\nAction: {"action_type": "status_complete"}')


def write_agent(tmp_path, name: str, url: str) -> str:
    """An agent file whose calls are kept in a folder of their own."""
    file = tmp_path / f"agent{len(list(tmp_path.iterdir()))}.yaml"
    calls = {"endpoint": url, "model": "m", "calls": str(file.with_suffix("")), "attempts": 1, "concurrency": 1}
    file.write_text(json.dumps(AGENTS[name] | calls))
    return str(file)


def prompts(tmp_path, name: str, episode: Episode, control: str | None) -> list[str]:
    """Every request of an agent's answers to an episode."""
    with serving(reply) as (url, requests):
        agent = agent_settings(write_agent(tmp_path, name, url)).load()
        if control is not None:
            agent = controlled(agent, CONTROLS[control])
        agent.answer_episodes([episode])
    return [json.dumps(request.body["messages"]) for request in requests]


@pytest.mark.parametrize("name", AGENTS)
def test_under_grey_screens_no_request_depends_on_what_a_screen_shows(tmp_path, name):
    grey = prompts(tmp_path, name, SHOWN, "grey_screens")
    assert grey == prompts(tmp_path, name, changed(SHOWN), "grey_screens")
    assert grey != prompts(tmp_path, name, SHOWN, None) != prompts(tmp_path, name, changed(SHOWN), None)
    assert "Clear cart" not in str(grey)


class Phone:
    """Its pages follow one another with each action, or with none if it is `frozen`."""

    activity = "org.shop/.Page"

    def __init__(self, frozen: bool) -> None:
        self.frozen, self.page = frozen, 0

    def screenshot(self) -> np.ndarray:
        return np.full((200, 100, 3), 40 * self.page, np.uint8)

    def elements(self) -> tuple[UiElement, ...]:
        return (UiElement((0.1, 0.1, 0.8, 0.8), f"Page {self.page}"),)

    def perform(self, action: Action) -> None:
        self.page += not self.frozen


ACTING = {
    "vision_tasker": (
        {"agent": "vision_tasker", "screen": "html"},
        '{"action": "press", "key": "back"}',
        ("nothing changed", "still the same"),
    ),
    "planner": (
        {"agent": "dynamic_planning", "mode": "reflexion", "feedback": "screen", "screen": "html"},
        '{"action_type": "navigate_back"}',
        ("did not change the screen",),
    ),
}


@pytest.mark.parametrize("name", ACTING)
@pytest.mark.parametrize("control", [None, "grey_screens"])
def test_whether_an_action_changed_the_screen_is_said_as_it_was_under_grey_screens_too(tmp_path, name, control):
    settings, answer, sentences = ACTING[name]
    for frozen in (False, True):
        with serving(lambda *_: Reply(answer)) as (url, requests):
            folder = tmp_path / str(frozen)
            file = tmp_path / f"{frozen}.yaml"
            file.write_text(json.dumps(settings | {"endpoint": url, "model": "m", "calls": str(folder)}))
            agent = agent_settings(str(file)).load()
            agent = agent if control is None else controlled(agent, CONTROLS[control])
            with TraceWriter(folder / "trace", Heading("1", "look around", "agent", "phone")) as trace:
                act(agent, Phone(frozen), "look around", trace, Guard(allow_purchases=True), Limits(steps=3, repeats=9))
        texts = [str(request.body["messages"][-1]) for request in requests]
        for sentence in sentences:
            assert sentence not in texts[0] and (sentence in texts[-1]) is frozen


def test_reports_say_what_grey_screens_hide_and_an_evaluation_that_hid_something_else_is_not_resumed(tmp_path, capsys):
    shards = tiny.write_shards(tmp_path / "shards", [SHOWN])
    with serving(reply) as (url, _):
        command = ["evaluate", "--shards", str(shards), "--split", "train", "--controls", "grey_screens"]
        out, agent = tmp_path / "out", write_agent(tmp_path, "vision_tasker html", url)
        assert main([*command, "--agent", agent, "--output", str(out)]) == OK
        line = "elements, activity and texts of the screen are removed"
        assert f"grey screens: pixels are grey; {line}" in capsys.readouterr().out
        assert line in (out / "report.html").read_text()
        plan = json.loads((out / "plan.json").read_text())
        del plan["described"]["grey_screens"], plan["checksum"]
        (out / "plan.json").write_text(json.dumps(plan))
        assert main([*command, "--agent", agent, "--output", str(out)]) == FAILED
        assert "grey_screens" in capsys.readouterr().err
        plain = ["--endpoint", url, "--agent.model", "m", "--output", str(tmp_path / "plain")]
        assert main([*command, *plain]) == OK
    assert "elements of the phone or data set, activity and recorded texts stay" in capsys.readouterr().out
