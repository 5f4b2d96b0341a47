"""A served model that reads a screen in words and names one action on one element of it (VisionTasker).

    system   the role, how the screen is written, the form of an answer
    user     the task, demonstrations of similar tasks, the actions so far, the screen

Each step is a chat of its own: the history holds actions alone, no earlier screens. An element that is not on the
screen is asked for once more with those that are; after a second wrong reply the step has no action. An answer may take
several actions: the first one is asked for, and the others follow from the answer of the last turn without a call.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from vlm_agent.agents.agent import Answer, Diagnostics, Turn
from vlm_agent.agents.chats import Chat, chat_of
from vlm_agent.agents.examples.store import Demonstration
from vlm_agent.agents.llm.prompted import PromptedAgent, RepairedCalls, Replies, asked_again
from vlm_agent.agents.llm.prompts import numbered_lines, system, user
from vlm_agent.agents.llm.replies import UnreadReplyError
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.agents.vision_tasker.calls import (
    Call,
    NoCallError,
    NoElementError,
    element_of,
    perform,
    read_call,
    stages_of,
)
from vlm_agent.agents.vision_tasker.prompts import VisionTaskerPrompts, call_line, history_lines, lines_without_effect
from vlm_agent.agents.vision_tasker.shown import NAME_CHARACTERS, PromptLanguage, Shown, ShownScreen, show
from vlm_agent.datasets.statistics.leakage import normalise
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Episode, Screen, is_same_screen, recorded_screen
from vlm_agent.texts.lines import one_line
from vlm_agent.texts.ordinals import names_of

_TYPICAL, _TOKENS = '{"action": "stop", "result": "done"}', 15
"""A reply for estimates, and its tokens."""

REPAIRED = 0.5
"""The share of the steps on whose screen the last reply cannot be read that have a second chat, which repairs it."""


@dataclass(frozen=True)
class VisionTaskerAgent(PromptedAgent):
    """`reader`: reads screens in words. `shown`: the screen as words, as HTML of its elements, or as a picture with
    their numbers. `language`: of the words and of `prompts`. `nearest`: the demonstration nearest to a goal, None for
    none. `max_tokens`: limit of a reply. `shows_history`: False leaves earlier actions out of the prompts; what follows
    from the last answer without a call is still done.
    """

    prompts: VisionTaskerPrompts
    reader: ScreenReader
    shown: Shown = "words"
    language: PromptLanguage = "en"
    nearest: Callable[[str], Demonstration | None] | None = None
    max_tokens: int = 300
    shows_history: bool = True

    def answer(self, goal: str, history: Sequence[Turn], screen: Screen, replies: Replies) -> Answer:
        if (following := self._following(history, screen)) is not None:
            return following
        example = None if self.nearest is None else self.nearest(goal)
        calls, shown = RepairedCalls(replies, self.prompts, self.max_tokens), self.show(screen)
        messages = self.messages(goal, history, shown, example)
        try:
            answer = calls.read(messages, lambda text: self.read(text, shown), _TYPICAL, _TOKENS)
        except UnreadReplyError as error:
            answer = Answer(error.text, None, diagnostics=Diagnostics(unread=str(error)))
        has_goal = None if self.nearest is None else example is not None and normalise(example.goal) == normalise(goal)
        diagnostics = replace(answer.diagnostics, repaired=calls.repaired, reference_has_goal=has_goal)
        return replace(answer, diagnostics=diagnostics)

    def read(self, text: str, shown: ShownScreen) -> Answer:
        """The first action of a reply. Raises UnreadReplyError for one that has none on this screen."""
        try:
            call = read_call(text)
            number = element_of(call, shown)
            done = perform(call, stages_of(call)[0], shown)
        except NoCallError as error:
            raise UnreadReplyError(self.prompts.problems[error.problem]) from None
        except NoElementError as error:
            raise UnreadReplyError(self._problem(error, shown)) from None
        if done is None:
            raise UnreadReplyError(self.prompts.problems["element"])
        action, box = done
        line = call_line(self.prompts, call, "" if number is None else shown.names[number])
        typed = call.text if "type" in stages_of(call)[1:] else ""
        return Answer(text, action, {"action": line}, box=box, diagnostics=Diagnostics(types_later=typed))

    def _problem(self, error: NoElementError, shown: ShownScreen) -> str:
        if not shown.boxes:
            return self.prompts.no_elements
        available = shown.listed(error.candidates)
        form = "ambiguous" if error.is_ambiguous else "absent"
        return self.prompts.fill(form, element=one_line(error.name[:80]), available=available)

    def _following(self, history: Sequence[Turn], screen: Screen) -> Answer | None:
        """The next action of the last answer, if it takes one more; None if the model is to be asked, as after an
        action that was not, or may not have been, executed."""
        last = history[-1].answer if history and not (history[-1].in_doubt or history[-1].failed) else None
        if last is None:
            return None
        try:
            call = read_call(last.text)
        except NoCallError:  # the answer of another agent
            return None
        stages, part = stages_of(call), last.diagnostics.part + 1
        if part >= len(stages):
            return None
        done = perform(call, stages[part], self.show(screen) if stages[part] == "find" else _NOTHING)
        if done is None:
            return None
        action, box = done
        found = Call("tap", call.then_tap) if stages[part] == "find" else None
        notes = {} if found is None else {"action": call_line(self.prompts, found, f'"{call.then_tap}"')}
        return Answer(last.text, action, notes, box=box, diagnostics=Diagnostics(part=part))

    def messages(
        self, goal: str, history: Sequence[Turn], shown: ShownScreen, example: Demonstration | None
    ) -> list[dict[str, Any]]:
        """A line break in a goal or a demonstration cannot begin a paragraph."""
        prompts, history, shown_example = self.prompts, history if self.shows_history else (), ""
        if example is not None:
            lines = numbered_lines([one_line(line) for line in example.lines])
            shown_example = prompts.fill("example", goal=one_line(example.goal), actions=lines)
        paragraphs = {
            "goal": one_line(goal),
            "examples": shown_example,
            "actions": numbered_lines(history_lines(prompts, history, self.show)),
            "unchanged": "; ".join(lines_without_effect(prompts, history, shown, self.show)),
            self.shown if self.shown != "marks" else "words": shown.description,
        }
        notes = [prompts.marks] if shown.picture is not None else []
        if not shown.boxes:
            notes.append(prompts.no_elements)
        text = "\n\n".join([prompts.paragraphs(paragraphs), *notes, prompts.question])
        opening = prompts.fill("system", screen=prompts.screens[self.shown])
        return [system(opening), user(text, [] if shown.picture is None else [shown.picture])]

    def show(self, screen: Screen) -> ShownScreen:
        return show(screen, self.shown, self.language, self.reader)


_NOTHING = ShownScreen((), (), ())
"""For stages that need no screen."""


def chats_of(agent: "VisionTaskerAgent", episodes: Iterable[Episode], demonstrated: float = 0.0) -> Iterator[Chat]:
    """A chat for each step that can be named. For a share of the steps another one follows, in which the agent repeats
    the reply of the last step, which cannot be read on this screen, and is asked again. `demonstrated`: the share of
    episodes whose prompts have the agent's demonstration, 0 to 1."""
    for episode in episodes:
        nearest = agent.nearest if _place(f"demonstration {episode.id}") < demonstrated else None
        example = None if nearest is None else nearest(episode.goal)
        history: list[Turn] = []
        last = None
        for number, step in enumerate(episode.steps):
            screen = recorded_screen(episode, number)
            if history:
                history[-1] = replace(history[-1], changed=not is_same_screen(history[-1].screen, screen))
            shown = agent.show(screen)
            reply = reply_of(step.action, shown)
            answer = Answer("", step.action)
            if reply is not None:
                try:
                    answer = agent.read(reply, shown)
                    messages = agent.messages(episode.goal, history, shown, example)
                    yield chat_of(messages, reply)
                    if last is not None and _place(f"repair {episode.id} {number}") < REPAIRED:
                        yield from _repaired(agent, messages, shown, last, reply)
                except UnreadReplyError:  # the element is covered by others, so its number cannot be touched
                    reply = None
            last = reply
            history.append(Turn(screen, answer, step.action, answer.notes))


def _repaired(
    agent: VisionTaskerAgent, messages: list[dict[str, Any]], shown: ShownScreen, wrong: str, reply: str
) -> Iterator[Chat]:
    """The chat in which `wrong` was the first reply; none where it can be read."""
    try:
        agent.read(wrong, shown)
    except UnreadReplyError as error:
        yield chat_of(asked_again(agent.prompts, messages, wrong, error), reply)


def _place(name: str) -> float:
    """In [0, 1), uniform over names: the same whichever others are read beside it."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def reply_of(action: Action, shown: ShownScreen) -> str | None:
    """The reply that means a recorded action on a screen; None for a touch on no element, and for kinds of actions that
    the agent does not have. An element is called by its text or name, as in the official code's answers, with an
    ordinal where several have the same: a small model copies a name sooner than it finds the number beside it."""
    content = _content(action, shown)
    return None if content is None else json.dumps(content, ensure_ascii=False)


def _element(number: int, shown: ShownScreen) -> str | int:
    name = one_line(shown.texts[number]) or shown.names[number]
    for called in names_of(number, name, shown.named):
        with suppress(NoCallError, NoElementError):  # several have the name; a text of digits alone would be a number
            call = read_call(json.dumps({"action": "tap", "element": called}))
            if len(called) <= NAME_CHARACTERS and element_of(call, shown) == number:
                return called
    return number


def _content(action: Action, shown: ShownScreen) -> dict[str, Any] | None:
    if action.is_touch:
        number = shown.at(action.touch_yx)
        name = "tap" if action.is_tap else "long_press"
        return None if number is None else {"action": name, "element": _element(number, shown)}
    if action.is_swipe:
        return {"action": "swipe", "direction": action.direction}
    if action.kind is ActionKind.TYPE:
        return {"action": "enter_text", "text": action.text}
    if action.name in BUTTONS:
        return {"action": "press", "key": action.name}
    if action.is_status:
        return {"action": "stop", "result": "done" if action == Action.complete() else "impossible"}
    return None
