"""The whole chain: `vlm-agent act` on a phone over ADB, its screens read, a server over HTTP that knows nothing but its
prompts."""

import json
import re

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.agents.understood import as_parts

from vlm_agent.agents import read_screens
from vlm_agent.cli import OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer

INSTALL = sample_task("install", "test", 0)
"""Installs an app: tap the search field, type, tap the app, tap its button."""

SMALL, LARGE = (448, 208), (896, 416)


class Reader:
    """Installs the app that the task names, by the lines of the screen and the actions so far in each prompt."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, number: int, body: dict) -> Reply:
        prompt = body["messages"][1]["content"]
        self.prompts.append(prompt)
        app = re.match(r"Task: Install (\w+)\n", prompt)[1]
        done = re.search(r"^Actions so far:\n((?:[0-9]+\. .*\n)+)", prompt, re.MULTILINE)
        steps = len(done[1].splitlines()) if done else 0
        wanted = [
            {"action": "enter_text", "element": self._id(prompt, "Search apps"), "text": app.lower()},
            {"action": "tap", "element": self._id(prompt, app)},
            {"action": "tap", "element": self._id(prompt, "Install")},
            {"action": "stop", "result": "done"},
        ]
        return Reply(json.dumps(wanted[steps]).replace("{", "｛").replace(":", "：").replace(",", "，"))

    @staticmethod
    def _id(prompt: str, name: str) -> int | str:
        found = re.search(rf"^([0-9]+)[^:\n]*: {name}$", prompt, re.MULTILINE)
        return name if found is None else int(found[1])


def act_over_adb(tmp_path, size, task=INSTALL, planner=None, **settings):
    """(exit status, the phone, the trace, the planner)"""
    planner, phone = Reader() if planner is None else planner, SimulatedPhone(task.seed, size)
    task.set_up(phone)
    path, trace = tmp_path / "agent.yaml", tmp_path / "trace"
    with PhoneServer(Handset(phone)) as server, serving(planner) as (url, _):
        path.write_text(json.dumps({"agent": "vision_tasker", "endpoint": url, "model": "m"} | settings))
        arguments = [
            "--device",
            f"adb:{server.serial}",
            "--goal",
            task.goal,
            "--trace",
            str(trace),
            "--elements",
            "read",
        ]
        status = main(["act", "--agent", str(path), *arguments])
        return status, server.handset.phone, read_trace(trace), planner


def check(status, phone, trace, planner):
    assert status == OK
    assert INSTALL.reached(phone)
    assert [step.action.name for step in trace.steps] == ["tap", "type", "tap", "tap", "complete"]
    assert len(planner.prompts) == 4  # the typing follows from the first answer
    assert [step.tokens for step in trace.steps][1] == (0, 0)
    assert trace.steps[0].notes["action"].startswith('enter "rooms" in')
    assert "elements read from pixels" in trace.heading.agent
    assert not any("image_url" in prompt for prompt in planner.prompts)


@pytest.fixture
def known(monkeypatch):
    """Screens are read without models: as what the served phone reports."""
    phones, serve = [], Handset.__init__

    def served(self, phone, *more):
        phones.append(phone)
        serve(self, phone, *more)

    monkeypatch.setattr(Handset, "__init__", served)
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: as_parts(phones[-1].elements()))


@pytest.fixture(autouse=True)
def fresh_memory():
    read_screens.ScreenReader.of.cache_clear()


def test_a_server_that_reads_only_the_prompts_installs_an_app(tmp_path, one_adb, known):
    status, phone, trace, planner = act_over_adb(tmp_path, SMALL)
    check(status, phone, trace, planner)
    assert all(step.elements for step in trace.steps)


@pytest.mark.ocr
@pytest.mark.slow
def test_the_same_with_every_screen_read_by_the_shipped_readers(tmp_path, one_adb):
    check(*act_over_adb(tmp_path, LARGE))


def test_an_agent_that_gives_up_asks_to_be_shown(tmp_path, one_adb, known, capsys):
    give_up = lambda number, body: Reply('{"action": "stop", "result": "impossible"}')  # noqa: E731
    act_over_adb(tmp_path, SMALL, planner=give_up)
    printed = capsys.readouterr().out
    assert "Show it how" in printed
    assert f"vlm-agent record --device WHICH --goal '{INSTALL.goal}' --output demonstrations.sqlite" in printed
    assert "demonstrations: demonstrations.sqlite" in printed
