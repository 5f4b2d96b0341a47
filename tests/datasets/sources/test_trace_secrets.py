"""Passwords and card numbers that an agent types reach no file of its trace."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vlm_agent.agents.agent import Diagnostics
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading, TraceStep, read_trace
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.devices.errors import RefusedError
from vlm_agent.episodes import Action, UiElement
from vlm_agent.files import read_checked, write_checked
from vlm_agent.texts.secrets import MASK

PASSWORD, CARD = 'Tr0ub4dor&"3', "4111 1111 1111 1111"
SIZE = (200, 100)


def box(row: int) -> tuple[float, float, float, float]:
    return (0.1 + 0.2 * row, 0.1, 0.08, 0.8)


def tap(row: int) -> Action:
    return Action.tap(0.14 + 0.2 * row, 0.5)


class Form:
    """A phone with a form. `fields`: the hint of each; a content is shown in place of it, as it is."""

    activity, size, status, answer = "shop/.Form", SIZE, None, None

    def __init__(self, *hints: str, labels: bool = False) -> None:
        self.hints, self.labels, self.contents, self.focus = hints, labels, [""] * len(hints), 0
        self.typed: list[str] = []

    def screenshot(self) -> np.ndarray:
        pixels = np.full((*SIZE, 3), 255, np.uint8)
        for row, content in enumerate(self.contents):
            pixels[int(SIZE[0] * (0.1 + 0.2 * row)) + 4, 10 : 10 + 2 * len(content)] = 0
        return pixels

    def elements(self) -> tuple[UiElement, ...]:
        found = []
        for row, (hint, content) in enumerate(zip(self.hints, self.contents, strict=True)):
            y, x, _, width = box(row)
            if self.labels:
                found.append(UiElement((y - 0.04, x, 0.03, width), hint))
            if content or not self.labels:
                found.append(UiElement(box(row), content or hint))
        return tuple(found)

    def perform(self, action: Action) -> None:
        if action.is_tap:
            self.focus = int((action.touch_yx[0] - 0.1) / 0.2)
        elif action.text:
            self.typed.append(action.text)
            self.contents[self.focus] += action.text


class Talking(ScriptedAgent):
    """Repeats the goal and what it types, as models do."""

    def act(self, goal, history, screen):
        answer = super().act(goal, history, screen)
        text = json.dumps({"goal": goal, "typed": answer.action.text})
        return type(answer)(text, answer.action, {"plan": f"type {PASSWORD}\npay with {CARD}"})


def run(folder: Path, phone: Form, *actions: Action, goal: str = f"log in with {PASSWORD}") -> bytes:
    """Every byte of the folder, after an agent has performed the actions."""
    with TraceWriter(folder, Heading("1", goal, "agent", "phone")) as trace:
        replies = folder / "calls" / "3f"
        replies.mkdir(parents=True)
        (replies / "3f09.json").write_text(json.dumps({"text": f"I type {PASSWORD}", "seconds": 0.4111111111111111}))
        act(Talking([*actions, Action.complete()]), phone, goal, trace, Guard(allow_purchases=True))
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def strings(folder: Path) -> str:
    """Every text of the JSON files; their numbers and checksums, which may have any digits, are left out."""

    def texts(content: object) -> list[str]:
        if isinstance(content, dict):
            content = [part for key, part in content.items() if key not in ("checksum", "crc32")]
        if isinstance(content, list):
            return [text for part in content for text in texts(part)]
        return [content] if isinstance(content, str) else []

    files = [folder / "trace.json", *(folder / "calls").rglob("*.json")]
    contents = [path.read_text() for path in files] + (folder / "steps.jsonl").read_text().splitlines()
    return "\n".join(text for content in contents for text in texts(json.loads(content)))


@pytest.mark.parametrize(
    "hint",
    ["Password", "Passwort", "Contraseña", "Mot de passe", "请输入密码", "パスワード", "비밀번호", "Пароль", "PIN"],
)
def test_nothing_typed_into_a_password_field_is_in_any_file(tmp_path, hint):
    phone = Form("Email", hint)
    written = run(
        tmp_path / "t", phone, tap(0), Action.type_text("ann@example.org"), tap(1), Action.type_text(PASSWORD)
    )
    assert phone.typed == ["ann@example.org", PASSWORD]  # the phone gets it
    for form in (PASSWORD, json.dumps(PASSWORD)[1:-1], "Tr0ub4dor"):
        assert form.encode() not in written
    assert b"ann@example.org" in written
    assert b"0.4111111111111111" in written  # numbers are not texts
    steps = read_trace(tmp_path / "t").steps
    assert [step.action.text for step in steps if step.action.text] == ["ann@example.org", MASK]


def test_a_label_beside_the_field_counts_and_several_pieces_are_one_password(tmp_path):
    phone = Form("Email", "Password", labels=True)
    pieces = [Action.type_text(piece) for piece in ("corr", "ect", "h", "orse")]
    written = run(tmp_path / "t", phone, tap(1), *pieces, tap(0), goal="log in")
    assert phone.contents[1] == "correcthorse"
    for form in (b"correcthorse", b"correct", b"horse", b"orse", b"ecth"):
        assert form not in written


def test_after_enter_the_field_is_unknown_and_a_password_on_the_screen_counts(tmp_path):
    phone = Form("Email", "Password")
    typing = (Action.type_text("ann"), Action.press("enter"), Action.type_text("sesame-7"))
    assert b"sesame-7" not in run(tmp_path / "t", phone, tap(0), *typing, goal="log in")


def test_a_card_number_is_masked_in_any_field_and_covered_on_the_picture(tmp_path):
    phone = Form("Number", "Name")
    run(tmp_path / "t", phone, tap(0), Action.type_text(CARD.replace(" ", "-")), tap(1), goal=f"pay with {CARD}")
    assert "1111" not in strings(tmp_path / "t")
    trace = read_trace(tmp_path / "t")
    assert trace.heading.goal == f"pay with {MASK}"
    before, after = trace.screen(trace.steps[1]), trace.screen(trace.steps[2])
    assert (before == 255).all()
    assert (after[20:36, 10:90] == 128).all()  # the box of its element
    assert (phone.screenshot()[20:36, 10:90] != 128).all()


def test_other_texts_are_as_typed_and_the_lines_of_the_trace_stay(tmp_path):
    chance = random.Random(3)
    words = ["pizza", "7:30", "password hygiene", "0049 89 636", "3.14159265358979"]
    for number in range(20):
        chance.shuffle(words)
        typing = [action for word in words for action in (tap(0), Action.type_text(word), tap(1))]
        folder = tmp_path / str(number)
        with TraceWriter(folder, Heading("1", "search", "agent", "phone")) as trace:
            form = Form("Search", "Filter")
            for index, action in enumerate(typing):
                trace.step(TraceStep(index, "s.png", "app/.Main", form.elements(), "x", action))
        found = [step.action.text for step in read_trace(folder).steps if step.action.text]
        assert found == words


def test_short_pieces_of_a_password_are_masked_in_their_own_steps(tmp_path):
    # letters that no checksum of a line has: a checksum of eight hexadecimal digits can contain "abc"
    pieces = [Action.type_text(piece) for piece in ("xyz", "uvw", "gh")]
    written = run(tmp_path / "t", Form("Email", "Password"), tap(1), *pieces, goal="log in")
    assert [form in written for form in (b"xyz", b"uvw", b'"gh"')] == [False] * 3
    steps = read_trace(tmp_path / "t").steps
    assert [step.action.text for step in steps if step.action.text] == [MASK] * 3


def test_a_short_piece_of_a_password_is_masked_in_the_reason_of_its_failure(tmp_path):
    class Refusing(Form):
        def perform(self, action: Action) -> None:
            if action.text == "gh":
                raise RefusedError("the phone does not type 'gh'")
            super().perform(action)

    pieces = [Action.type_text(piece) for piece in ("abc", "def", "gh")]
    run(tmp_path / "t", Refusing("Email", "Password"), tap(1), *pieces, goal="log in")
    messages = [step.message for step in read_trace(tmp_path / "t").steps if step.outcome == "failed"]
    assert set(messages) == {f"the phone does not type '{MASK}'"}


def test_a_field_that_shows_its_password_is_still_one_after_another_tap(tmp_path):
    typing = (tap(1), Action.type_text("hun"), tap(1), Action.type_text("ter2"), tap(0))
    written = run(tmp_path / "t", Form("Email", "Password"), *typing, goal="log in")
    assert b"hun" not in written
    assert b"ter2" not in written


def test_a_card_number_typed_in_pieces_is_masked(tmp_path):
    typing = (tap(0), Action.type_text("4012 8888 "), Action.wait(), Action.type_text("8888 1881"), tap(1))
    run(tmp_path / "t", Form("Number", "Name"), *typing, goal="pay")
    assert [form in strings(tmp_path / "t") for form in ("4012", "8888", "1881")] == [False] * 3
    trace = read_trace(tmp_path / "t")
    covered = [bool((trace.screen(step)[20:36, 10:90] == 128).all()) for step in trace.steps]
    assert covered == [False, False, True, True, True, True]  # also where its first piece alone was shown


def test_a_reply_before_the_agent_failed_is_masked(tmp_path):
    class Failing(ScriptedAgent):
        def act(self, goal, history, screen):
            if len(history) == 2:
                (tmp_path / "t" / "reply.json").write_text(json.dumps({"text": f"I typed {PASSWORD}"}))
                raise ConnectionError("lost")
            return super().act(goal, history, screen)

    agent = Failing([tap(1), Action.type_text(PASSWORD), Action.complete()])
    with pytest.raises(ConnectionError), TraceWriter(tmp_path / "t", Heading("1", "log in", "agent", "phone")) as trace:
        act(agent, Form("Email", "Password"), "log in", trace, Guard(allow_purchases=True))
    assert json.loads((tmp_path / "t" / "reply.json").read_text()) == {"text": f"I typed {MASK}"}


def test_a_checked_file_with_a_secret_keeps_a_valid_checksum(tmp_path):
    with TraceWriter(tmp_path / "trace", Heading("1", "log in", "agent", "phone")) as trace:
        reply = tmp_path / "trace/calls/3f/3f09.json"
        write_checked(reply, {"text": f"I type {PASSWORD}", "tokens": [1, 2]})
        actions = [tap(1), Action.type_text(PASSWORD), Action.complete()]
        act(ScriptedAgent(actions), Form("Email", "Password"), "log in", trace, Guard())
    assert read_checked(reply, "remove it") == {"text": f"I type {MASK}", "tokens": [1, 2]}


class TypesLater(ScriptedAgent):
    """One reply names the field and the text, as VisionTasker's `enter_text`: the first action is the touch."""

    def act(self, goal, history, screen):
        answer = super().act(goal, history, screen)
        return replace(answer, text=f"enter {PASSWORD}", diagnostics=Diagnostics(types_later=PASSWORD))


@pytest.mark.parametrize(("hint", "is_masked"), [("Password", True), ("Search", False)])
def test_a_run_that_ends_between_the_touch_of_a_password_field_and_its_text_has_no_password(tmp_path, hint, is_masked):
    heading = Heading("1", f"log in with {PASSWORD}", "agent", "phone")
    with TraceWriter(tmp_path / "t", heading) as trace:
        act(TypesLater([tap(0)]), Form(hint), heading.goal, trace, Guard(), Limits(steps=1))
    written = b"".join(path.read_bytes() for path in sorted((tmp_path / "t").glob("*.json*")))
    assert (json.dumps(PASSWORD)[1:-1].encode() in written) != is_masked
