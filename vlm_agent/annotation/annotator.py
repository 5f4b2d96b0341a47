"""The texts of each step of an episode: kept where they exist, otherwise by template or by a model.

| text     | from                                                                                             |
|----------|--------------------------------------------------------------------------------------------------|
| `screen` | the screen alone                                                                                 |
| `action` | a template; the model names what a tap touches, and sees it marked                               |
| `think`  | goal, screen and its description, the actions so far, and the recorded action as the conclusion  |
| `result` | the screens before and after the action; fixed for the end of an episode, empty without a screen |
| `plan`   | goal, screen, the lines of the steps so far, and the recorded action                              |

Texts never depend on whether calls fail: a text whose inputs are missing waits for them. So an interrupted annotation
has the same texts as an uninterrupted one.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from vlm_agent.agents.llm.client import CallError
from vlm_agent.agents.llm.prompts import assistant
from vlm_agent.agents.llm.replies import Plan, UnreadReplyError, read_plan, sendable
from vlm_agent.annotation.prompts import Messages, Prompts
from vlm_agent.episodes import Episode, Step, element_at
from vlm_agent.texts.actions import describe_action

TEXTS = ("screen", "action", "think", "result")
"""Names of notes, in the order in which they are written."""

STOPPED = "The screen does not change: the agent stops here."
"""The result of an action that ends the episode. No later step reads it."""

PLAN = "plan"
"""The name of a plan among the texts of an annotation."""

PLAN_NOTES = (PLAN, "step")
"""The notes that are written together."""

TYPICAL = '{"plan": ["tap on Clock", "tap on Alarm", "stop, the task is complete"], "step": "tap on Clock"}'
"""A reply for estimates."""

_MOST_LINES = 20

CHOICES = (*TEXTS, PLAN)
"""Texts that can be written; by default those of `TEXTS`."""

Ask = Callable[[str, Messages], str]
"""The reply to a request for one of `CHOICES`. Raises CallError if the request fails."""

MOST_CHARACTERS = 8000
"""The limit of a text."""


WAITS = "it needs the text"
"""The start of a reason why a text is missing: another one is."""


@dataclass
class StepTexts:
    """`notes`: by name, empty or absent where missing. `origin`: by name (`CHOICES`), `kept`, `template`, `model` or
    `none` (the step has no such text). `failed`: by name, why a text is missing."""

    notes: dict[str, str]
    origin: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Annotator:
    """`texts`: which of `CHOICES` to write; a plan needs `prompts` with `shown`. `replace`: also where a step has one.

    `accept_missing`: a text that depends on a missing one is written without it, otherwise it waits. `discard`: called
    with a request whose reply has no text, so that it can be sent again later.
    """

    prompts: Prompts
    ask: Ask
    texts: Sequence[str] = TEXTS
    replace: bool = False
    accept_missing: bool = False
    discard: Callable[[Messages], object] = bool

    @property
    def counted(self) -> tuple[str, ...]:
        """The texts whose origins are counted: `TEXTS`, and `PLAN` if it is written."""
        return CHOICES if PLAN in self.texts else TEXTS

    def annotate(self, episode: Episode) -> list[StepTexts]:
        """The texts of each step. Raises every error of `ask` but CallError."""
        steps = [StepTexts(dict(step.notes)) for step in episode.steps]
        for name in TEXTS:
            for number, step in enumerate(steps):
                if step.notes.get(name) and not (self.replace and name in self.texts):
                    step.origin[name] = "kept"
                elif name in self.texts:
                    self._write(name, episode, number, steps)
                else:
                    step.origin[name] = "none"
        if PLAN in self.texts:
            for number in range(len(steps)):
                self._write_plan(episode, number, steps)
        return steps

    def _write_plan(self, episode: Episode, number: int, steps: Sequence[StepTexts]) -> None:
        own = steps[number]
        if PLAN in own.notes and not self.replace:
            own.origin[PLAN] = "kept"
            return
        for name in PLAN_NOTES:
            own.notes.pop(name, None)
        try:
            self._wait_for(PLAN, steps[:number])
            self._wait_for("action", steps[: number + 1])
            before = zip(episode.steps[:number], steps, strict=False)
            earlier = [texts.notes.get("step") or _action_text(step, texts) for step, texts in before]
            action = _action_text(episode.steps[number], own)
            own.notes |= self._planned(self.prompts.plan(episode.goal, earlier, episode.steps[number], action))
            own.origin[PLAN] = "model"
        except CallError as error:
            own.failed[PLAN] = str(error)

    def _planned(self, messages: Messages) -> dict[str, str]:
        """The notes `plan` and `step` in the reply to a request.

        A reply that cannot be read is asked for once more, with the reason. Raises CallError if a request fails, and if
        neither of two replies can be read; both requests are then discarded.
        """
        reply = self.ask(PLAN, messages)
        try:
            return _texts(read_plan(reply, with_step=True))
        except UnreadReplyError as error:
            again = [*messages, assistant(sendable(reply)), *self.prompts.plan_again(str(error))]
        try:
            return _texts(read_plan(self.ask(PLAN, again), with_step=True))
        except UnreadReplyError as error:
            self.discard(messages)
            self.discard(again)
            raise CallError(f"two replies have no plan and step: {error}") from None

    def _write(self, name: str, episode: Episode, number: int, steps: Sequence[StepTexts]) -> None:
        """Writes one of `TEXTS`, with the method of its name."""
        own = steps[number]
        own.notes[name] = ""
        try:
            own.notes[name], own.origin[name] = getattr(self, f"_{name}")(episode, number, steps)
        except CallError as error:
            own.failed[name] = str(error)

    def _screen(self, episode: Episode, number: int, steps: Sequence[StepTexts]) -> tuple[str, str]:
        return self._reply("screen", self.prompts.screen(episode.steps[number])), "model"

    def _action(self, episode: Episode, number: int, steps: Sequence[StepTexts]) -> tuple[str, str]:
        step = episode.steps[number]
        if not step.action.is_touch:
            return describe_action(step.action), "template"
        texts = [element.text for element in step.elements]
        name = self._reply("action", self.prompts.touched(step), lambda reply: element_name(clean_text(reply), texts))
        return describe_action(step.action, name), "model"

    def _think(self, episode: Episode, number: int, steps: Sequence[StepTexts]) -> tuple[str, str]:
        self._wait_for("action", steps[: number + 1])
        self._wait_for("screen", steps[number : number + 1])
        actions = [_action_text(episode.steps[at], steps[at]) for at in range(number + 1)]
        messages = self.prompts.think(
            episode.goal, actions[:-1], episode.steps[number], steps[number].notes.get("screen", ""), actions[-1]
        )
        return self._reply("think", messages), "model"

    def _result(self, episode: Episode, number: int, steps: Sequence[StepTexts]) -> tuple[str, str]:
        step = episode.steps[number]
        if step.action.is_status:
            return STOPPED, "template"
        if number + 1 == len(episode):
            return "", "none"
        self._wait_for("action", steps[number : number + 1])
        messages = self.prompts.result(step, episode.steps[number + 1], _action_text(step, steps[number]))
        return self._reply("result", messages), "model"

    def _wait_for(self, name: str, steps: Sequence[StepTexts]) -> None:
        if not self.accept_missing and any(name in step.failed for step in steps):
            raise CallError(f"{WAITS} {name!r}, which is missing")

    def _reply(self, name: str, messages: Messages, read: Callable[[str], str] | None = None) -> str:
        """What `read`, by default `clean_text`, makes of the reply."""
        text = (clean_text if read is None else read)(self.ask(name, messages))
        if not text:
            self.discard(messages)
            raise CallError("the reply has no text" if read is None else "the reply names no element")
        return text


def _action_text(step: Step, own: StepTexts) -> str:
    """The description of an action; where it is not among the texts, by template with the annotated element's name."""
    if text := own.notes.get("action"):
        return text
    if not step.action.is_touch:
        return describe_action(step.action)
    element = element_at(step.elements, step.action.touch_yx)
    return describe_action(step.action, "an element" if element is None else f'"{element.name}"')


def clean_text(reply: str) -> str:
    """A reply as one paragraph: valid Unicode without control and invisible characters, at most 8,000 characters."""
    visible = (" " if character.isspace() else character for character in reply[: 4 * MOST_CHARACTERS])
    kept = "".join(
        character for character in visible if character in _JOINERS or unicodedata.category(character) not in _INVISIBLE
    )
    return " ".join(kept.split())[:MOST_CHARACTERS].rstrip()


_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}
_JOINERS = "\u200c\u200d"  # change how letters and emoji are drawn, and are part of the spelling of some languages

_OPENINGS = ("click on ", "click ", "tap on ", "tap ", "touch ", "long press ", "press ", "the marked element is ")


def element_name(text: str, on_screen: Iterable[str] = ()) -> str:
    """The words for an element in a reply: without a verb before it, a period or quotation marks around it.

    `on_screen`: texts of elements, which are names as they are: "Touch ID" begins with no verb.
    """
    name = text.strip(" .")
    if name.casefold() in {" ".join(one.split()).strip(" .").casefold() for one in on_screen}:
        return name
    opening = next((opening for opening in _OPENINGS if name.casefold().startswith(opening)), "")
    name = name[len(opening) :]
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'`" and name[0] not in name[1:-1]:
        name = name[1:-1]
    return name.strip(" .:`*")


def _texts(plan: Plan) -> dict[str, str]:
    return {PLAN: "\n".join(plan.lines[:_MOST_LINES]), "step": plan.step}
