"""`vlm-agent annotate --texts plan`: a plan a step from this screen alone, read or asked once more, no call twice."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.pages.annotation_requests import tree
from helpers.pages.served_pages import exchange, served

from vlm_agent.agents.llm.client import CallError
from vlm_agent.annotation.annotator import TYPICAL, Annotator
from vlm_agent.annotation.check import check_episode, check_planned_step
from vlm_agent.annotation.prompts import Prompts
from vlm_agent.annotation.review.server import ReviewServer
from vlm_agent.annotation.review.session import ReviewSession
from vlm_agent.cli import FAILED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import VERSION, notes_of
from vlm_agent.episodes import Action, Episode, Notes, Step, UiElement

EPISODES, STEPS = 4, 5


def words(shards, url, output, *more):
    command = ["annotate", str(shards), "--endpoint", url, "--model", "mine", "--output", str(output)]
    return [*command, "--texts", "plan", *map(str, more)]


def text_of(message: dict) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def pictures_of(body: dict) -> int:
    contents = [message["content"] for message in body["messages"] if not isinstance(message["content"], str)]
    return sum(part["type"] == "image_url" for content in contents for part in content)


def digest(body: dict) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]


def plan_for(body: dict) -> str:
    """A plan that depends on the whole request, in a reply as models write it."""
    plan = {"plan": [f"1. do {digest(body)}", "2. stop, the task is complete"], "step": f"do {digest(body)}"}
    return f"Here it is:\n```json\n{json.dumps(plan)}\n```"


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """(folder, requests) of an uninterrupted annotation."""
    output = tmp_path_factory.mktemp("whole") / "out"
    with serving(lambda _, body: Reply(plan_for(body))) as (url, requests):
        assert main(words(shards, url, output)) == 0
    return output, requests


def test_every_step_has_a_plan_and_nothing_else_changes(shards, whole):
    output, requests = whole
    before, after = ShardDataset(shards), ShardDataset(output)
    assert (after.ids, after.splits) == (before.ids, before.splits)
    for index in range(EPISODES):
        old, new = before.row(index), after.row(index)
        plans = [notes_of(step.pop("notes")) for step in new["steps"]]
        assert [step.pop("notes") for step in old["steps"]] == [[]] * STEPS
        assert new == old
        for plan in plans:
            assert plan["plan"] == f"{plan['step']}\nstop, the task is complete"
            assert plan["step"].startswith("do ")
    assert len(requests) == EPISODES * STEPS
    assert after.manifest["texts"]["plan"] == {"model": EPISODES * STEPS}
    assert after.manifest["schema_version"] == VERSION


def test_a_request_shows_goal_screen_action_and_the_steps_so_far(shards, whole):
    output, requests = whole
    by_text = {text_of(request.body["messages"][0]): request.body for request in requests}
    for episode in (ShardDataset(output).without_pixels(index) for index in range(EPISODES)):
        steps = [step.notes["step"] for step in episode.steps]
        for number, step in enumerate(episode.steps):
            (own,) = [text for text, body in by_text.items() if f"do {digest(body)}" == steps[number]]
            assert episode.goal in own
            assert [line for line in steps if line in own] == steps[:number]
            assert all(element.text in own for element in step.elements)
            assert pictures_of(by_text[own]) == 1


def test_no_request_depends_on_a_later_screen():
    """Two episodes that differ from one screen on have the same requests before it."""
    episode = tiny.episode(1)
    later = [
        replace(step, screenshot=np.zeros_like(step.screenshot), elements=(UiElement((0, 0, 1, 1), "later"),))
        for step in episode.steps[2:]
    ]
    other = replace(episode, steps=(*episode.steps[:2], *later))

    def requests(one: Episode) -> list[str]:
        asked = []

        def ask(_, messages):
            asked.append(json.dumps(messages, sort_keys=True))
            return TYPICAL

        Annotator(Prompts(shown="both"), ask, ("plan",)).annotate(one)
        return asked

    first, second = requests(episode), requests(other)
    assert first[:2] == second[:2]
    assert all(a != b for a, b in zip(first[2:], second[2:], strict=True))


def test_a_plan_waits_for_the_text_of_its_action():
    asked = []

    def ask(name, messages):
        asked.append(name)
        if name == "action":
            raise CallError("no answer")
        return TYPICAL

    step = Step(np.zeros((8, 4, 3), np.uint8), Action.tap(0.5, 0.5), (UiElement((0, 0, 1, 1), "", "ICON_ADD"),))
    episode = Episode("e", "general", "go", (step, step))
    texts = Annotator(Prompts(shown="both"), ask, ("action", "plan")).annotate(episode)
    assert "action" in asked and "plan" not in asked  # asked with another text later, it would be paid twice
    assert "needs the text 'action'" in texts[0].failed["plan"] and texts[1].failed["plan"]


@pytest.mark.parametrize(("shown", "pictures"), [("html", 0), ("picture", 1), ("both", 1)])
def test_the_screen_is_shown_as_html_as_a_picture_or_both(shards, tmp_path, shown, pictures):
    with serving(lambda _, body: Reply(plan_for(body))) as (url, requests):
        assert main(words(shards, url, tmp_path / "out", "--screen", shown, "--limit", 1)) == 0
    assert {pictures_of(request.body) for request in requests} == {pictures}
    assert {"<p id=" in text_of(request.body["messages"][0]) for request in requests} == {shown != "picture"}


def test_a_reply_that_cannot_be_read_is_asked_for_once_more_with_the_reason(shards, tmp_path):
    def answer(_, body):
        return Reply(plan_for(body) if len(body["messages"]) > 1 else "I would tap the clock.")

    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out", "--limit", 1)) == 0
    assert len(requests) == 2 * STEPS
    first, again = requests[0].body["messages"], requests[1].body["messages"]
    assert again[0] == first[0]
    assert text_of(again[1]) == "I would tap the clock."
    assert "it has no JSON object" in text_of(again[2])


def test_a_step_without_a_plan_is_listed_and_asked_again_alone(shards, whole, tmp_path, capsys):
    refused: list[str] = []

    def answer(_, body):
        first = text_of(body["messages"][0])
        if broken and "none" in first and (not refused or first in refused):
            refused.append(first)
            return Reply('{"plan": ["open it"]}')
        return Reply(plan_for(body))

    broken = True
    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out")) == FAILED
        assert "two replies have no plan and step" in capsys.readouterr().err
        listed = [json.loads(line) for line in (tmp_path / "out/failed.jsonl").read_text().splitlines()]
        assert [one["text"] for one in listed] == ["plan"] * STEPS  # the later steps of the episode wait for the first
        assert all("needs the text 'plan'" in one["reason"] for one in listed[1:])
        answered, broken = len(requests), False
        assert main(words(shards, url, tmp_path / "out")) == 0
        assert len(requests) - answered == STEPS
    assert tree(tmp_path / "out") == tree(whole[0])


def test_missing_plans_are_accepted_only_when_asked(shards, tmp_path):
    with serving(lambda _, body: Reply("no")) as (url, _):
        assert main(words(shards, url, tmp_path / "out", "--limit", 1)) == FAILED
        assert main(words(shards, url, tmp_path / "out", "--limit", 1, "--accept-missing")) == 0
    dataset = ShardDataset(tmp_path / "out")
    assert not any(step.notes for step in dataset.without_pixels(0).steps)
    assert dataset.manifest["texts"]["plan"] == {"missing": STEPS}


def test_killed_at_any_time_it_resumes_to_the_same_bytes_without_a_call_twice(shards, whole, tmp_path):
    output = tmp_path / "out"
    with serving(lambda _, body: Reply(plan_for(body), wait=0.02)) as (url, requests):
        command = [sys.executable, "-m", "vlm_agent.cli", *words(shards, url, output, "--concurrency", 2)]
        process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(requests) < 7 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert 7 <= len(requests) < len(whole[1])
        assert main(words(shards, url, output, "--concurrency", 2)) == 0
    assert tree(output) == tree(whole[0])
    assert len(requests) <= len(whole[1]) + 2  # one of each thread may have been under way


def test_a_server_with_faults_is_asked_until_it_answers(shards, whole, tmp_path):
    faults = [Reply(b"busy", status=status, headers={"Retry-After": "0"}) for status in (429, 500)]

    def answer(number, body):
        return faults[number % 2] if number in (3, 8) else Reply(plan_for(body))

    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out")) == 0
    assert tree(tmp_path / "out") == tree(whole[0])
    assert len(requests) == len(whole[1]) + 2


def test_plans_that_steps_have_are_kept_unless_replaced(whole, tmp_path):
    def answer(_, body):
        return Reply(json.dumps({"plan": ["new"], "step": "new"}))

    with serving(answer) as (url, requests):
        assert main(words(whole[0], url, tmp_path / "kept")) == 0
        assert requests == []
        assert main(words(whole[0], url, tmp_path / "new", "--replace")) == 0
    kept, new, old = (ShardDataset(folder) for folder in (tmp_path / "kept", tmp_path / "new", whole[0]))
    for index in range(EPISODES):
        assert kept.row(index) == old.row(index)
        assert {step.notes for step in new.without_pixels(index).steps} == {Notes({"plan": "new", "step": "new"})}


def test_the_review_shows_plans_and_its_edits_keep_them(whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole[0], output)
    plans = [dict(step.notes) for step in ShardDataset(output).without_pixels(0).steps]
    session = ReviewSession(output)
    assert session.step(0, 1).plan == tuple(plans[1]["plan"].split("\n"))
    assert session.step(0, 1).planned == plans[1]["step"]
    with served(ReviewServer(session)) as server:
        cookie = {"Host": server.hosts[0], "Cookie": f"{server.cookie}={server.token}"}
        _, _, page = exchange(server, "GET", "/step/0/1", cookie, b"")
    assert "<b>Plan</b> (read only)" in page.decode()
    session.save(0, 1, dict.fromkeys(("screen", "think", "result"), "") | {"action": "open it"}, accepted=True)
    assert main(["annotate", "--finish", "--output", str(output)]) == 0
    steps = ShardDataset(output).without_pixels(0).steps
    assert [{name: step.notes[name] for name in ("plan", "step")} for step in steps] == plans
    assert steps[1].notes["action"] == "open it"


def test_an_annotation_without_plans_is_described_as_before_plans_existed(shards, tmp_path):
    """So the folder of an earlier version is resumed: a plan with another key is refused."""
    with serving(lambda _, body: Reply("a text")) as (url, _):
        command = words(shards, url, tmp_path / "out", "--limit", 1)
        assert main([word for word in command if word not in ("--texts", "plan")]) == 0
    described = ShardDataset(tmp_path / "out").manifest["annotation"]
    keys = ("shards", "prompts_sha256", "model", "texts", "replace", "max_tokens", "split", "subset", "limit")
    assert tuple(described) == keys
    assert described["texts"] == ["screen", "action", "think", "result"]
    assert described["prompts_sha256"] == "6150aacc94c92ff3930453a19a6a8556035ebab5f00db93aeacb27189143b3ed"


def test_options_of_plans_need_plans(shards, tmp_path):
    with pytest.raises(SystemExit):
        main([*words(shards, "http://127.0.0.1:9", tmp_path)[:-2], "--screen", "html"])


ELEMENTS = (
    UiElement((0.1, 0.1, 0.1, 0.3), "Clock"),
    UiElement((0.3, 0.1, 0.1, 0.3), "Gmail"),
    UiElement((0.5, 0.1, 0.1, 0.1), "", "ICON_GLOBE"),
)
CLOCK, GLOBE = Action.tap(0.15, 0.2), Action.tap(0.55, 0.15)
UP = Action.swipe((0.8, 0.5), (0.2, 0.5))


@pytest.mark.parametrize(
    ("line", "action", "problem"),
    [
        ("Open Clock", CLOCK, None),
        ("find the clock and open it", CLOCK, None),
        ("Open Gmail", CLOCK, "other element"),
        ("Open Settings", CLOCK, "not on the screen"),
        ("open the browser", GLOBE, None),  # an icon may have a name that its annotation lacks
        ("close this", GLOBE, None),
        ("Scroll down", CLOCK, "other action"),
        ("look down for Drinks", UP, None),
        ("swipe down", UP, "other direction"),
        ("type black shoes", Action.type_text("black shoes"), None),
        ("type shoes", Action.type_text("black shoes"), "other text"),
        ("go home to open Mail", Action.press("home"), None),
        ("go back", Action.press("home"), "other button"),
        ("stop, the task is complete", Action.complete(), None),
        ("stop, the task is complete", Action.impossible(), "other status"),
        ("", CLOCK, "missing"),
    ],
)
def test_the_check_lists_steps_that_contradict_their_action_or_name_nothing_here(line, action, problem):
    step = Step(None, action, ELEMENTS, notes={"plan": line, "step": line})
    assert check_planned_step(line, step) == problem
    found = [finding.problem for finding in check_episode(Episode("1", "general", "go", (step,)))]
    assert found == ([] if problem is None else [f"plan: {problem}"])


def test_the_check_of_plans_leaves_that_of_descriptions_alone():
    step = Step(None, CLOCK, ELEMENTS, notes={"action": "scroll up", "plan": "Open Clock", "step": "Open Clock"})
    assert [one.problem for one in check_episode(Episode("1", "general", "go", (step,)))] == ["other action"]
