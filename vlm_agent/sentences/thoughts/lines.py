"""The texts in a trajectory: a line each, around the screen and before the action.

    Result: AR        before the screen, after the previous action (or the goal)
    Screen: SD
    SCREEN cue
    AT                after the cue, with the action on the last line
    AD
    ACTION END

The read lines have headings, and an empty one is left out. The learned lines have none, so that each costs one token;
the first is AT if both are on, and an empty one stays. AT and AD of earlier steps remain in the sentence before the
later actions: one forward pass learns all actions. Lines of plans (`plans.py`) precede both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from vlm_agent.recipe.data import CoatRecipe, DataRecipe
from vlm_agent.sentences.thoughts.plans import NO_PLANS, PlanLines
from vlm_agent.texts.lines import one_line

_HEADINGS = {"result": "Result: ", "screen": "Screen: "}


@dataclass(frozen=True)
class AnswerLines:
    """`action`: the text of the action. `notes`: those that are learned, and the immediate step also as `action` unless
    an action is described."""

    action: str
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LineThoughts:
    """`parts`: the parts that are on. `plans`: the lines of plans, before those of thoughts."""

    parts: CoatRecipe = CoatRecipe()  # noqa: RUF009 (frozen)
    plans: PlanLines = NO_PLANS

    @classmethod
    def of(cls, data: DataRecipe) -> Self:
        return cls(data.coat, PlanLines(data.plan))

    @property
    def learned_names(self) -> tuple[str, ...]:
        """The parts of the lines before the action of an answer."""
        return (*self.plans.parts.learned, *self.parts.learned)

    @property
    def before_action(self) -> int:
        """The number of lines before the action of an answer."""
        return len(self.learned_names)

    @property
    def reads_texts(self) -> bool:
        return bool(self.parts.read or self.plans.parts.read)

    def at(self, is_first: bool) -> Self:
        """The lines of an answer at the first step of an episode, or at a later one."""
        return replace(self, plans=self.plans.at(is_first))

    def read(self, notes: Mapping[str, str]) -> list[str]:
        """The lines before a screen, each with its line feed."""
        shown = [part for part in _HEADINGS if part in self.parts.read]
        return [line for part in shown if (line := segment(part, notes.get(part, "")))]

    def learned(self, notes: Mapping[str, str]) -> list[str]:
        """The lines before an action, each with its line feed. A part without a text is an empty line."""
        return [segment(part, notes.get(part, "")) for part in self.parts.learned]

    def split(self, answer: str) -> tuple[dict[str, str], str]:
        """The thoughts and the text of the action in what follows the plan of an answer. Without learned parts: none,
        and the whole text.

        The action follows the line feed of the last learned part. An answer with fewer lines has the first parts.
        """
        names = self.parts.learned
        if not names:
            return {}, answer
        *texts, action = answer.split("\n", len(names))
        # SentencePiece's tokenizers write a space before each segment.
        return {name: text.strip() for name, text in zip(names, texts, strict=False)}, action.lstrip(" ")

    def read_answer(self, answer: str) -> "AnswerLines":
        """The parts of an answer."""
        plans, rest = self.plans.split(answer)
        thoughts, action = self.split(rest)
        described = {"action": plans["step"]} if "step" in plans else {}
        return AnswerLines(action, {**plans, **described, **thoughts})

    def ending(self, text: str, of_action: Callable[[str], str | None]) -> str | None:
        """Text that completes `text` to an answer; any thought is allowed. `of_action`: `ActionLanguage.ending`."""
        missing = self.before_action - text.count("\n")
        if missing > 0:
            action = of_action("")
            return None if action is None else "\n" * missing + action
        return of_action(self.split(self.plans.split(text)[1])[1])


NO_THOUGHTS = LineThoughts()
"""Every part is off."""


def segment(part: str, text: str) -> str:
    """The line of a text. `part`: a part of `CoatRecipe`. Empty for an empty text that is read."""
    line = one_line(text)
    if part not in _HEADINGS:
        return f"{line}\n"
    return f"{_HEADINGS[part]}{line}\n" if line else ""
