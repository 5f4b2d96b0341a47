"""The plan and the immediate step of D-PoT in a trajectory.

    Goal: …
    Plan: a; b            `plan: first`, at later steps: the plan of the first step
    Done: …               earlier steps in words: their immediate steps, if these are on
    Plan: a; b            `plan: given`, of the current step alone
    Step: a               `step: given`
    SCREEN cue
    a; b                  `plan: learned`, of the current step alone; `plan: first`, at the first step
    a                     `step: learned`
    ACTION END

As in `lines.py`, the read lines have headings, and an empty one is left out; the learned lines have none, and an empty
one stays. A step that is shown with its screen keeps its immediate step and loses its plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vlm_agent.errors import UserError
from vlm_agent.recipe.plan import PlanRecipe
from vlm_agent.texts.lines import one_line

_HEADINGS = {"plan": "Plan: ", "step": "Step: "}
_LINK = "; "


@dataclass(frozen=True)
class PlanLines:
    """`parts`: what is on."""

    parts: PlanRecipe = PlanRecipe()  # noqa: RUF009 (frozen)

    def read(self, notes: Mapping[str, str], is_past: bool = False) -> list[str]:
        """The lines before a screen, each with its line feed. Raises UserError without the texts that they need."""
        return self._lines([part for part in self.parts.read if part == "step" or not is_past], notes)

    def static(self, first: Mapping[str, str]) -> list[str]:
        """The lines after the goal, at a step that is not the first one. `first`: the notes of the first step."""
        return self._lines(["plan"], first) if self.parts.is_static else []

    def _lines(self, parts: Sequence[str], notes: Mapping[str, str]) -> list[str]:
        absent = [part for part in parts if part not in notes]
        if absent and self.parts.missing == "error":
            raise UserError(
                f"data.plan.{absent[0]}: {self.parts.how(absent[0])} reads a plan of a recorded episode, and this step "
                "has none; a phone has none either, so act with a run that learned its plans, or evaluate on shards "
                "with plans"
            )
        return [line for part in parts if (line := read_line(part, written(part, notes.get(part, ""))))]

    def learned(self, notes: Mapping[str, str], is_past: bool = False) -> list[str]:
        """The lines before an action and its thoughts, each with its line feed. A part without a text is empty."""
        parts = [part for part in self.parts.learned if part == "step" or not is_past]
        return [f"{written(part, notes.get(part, ''))}\n" for part in parts]

    def in_words(self, notes: Mapping[str, str]) -> str:
        """An earlier step on one line; empty where its action stands for it."""
        return "" if self.parts.step == "off" else written("step", notes.get("step", ""))

    def split(self, answer: str) -> tuple[dict[str, str], str]:
        """What was learned, and the rest of an answer. Without learned parts: none, and the whole answer.

        An answer with fewer lines has the first parts.
        """
        names = self.parts.learned
        if not names:
            return {}, answer
        *texts, rest = answer.split("\n", len(names))
        # SentencePiece's tokenizers write a space before each segment.
        return {name: read_written(name, text) for name, text in zip(names, texts, strict=False)}, rest.lstrip(" ")

    def at(self, is_first: bool) -> "PlanLines":
        """The lines of an answer at the first step of an episode, or at a later one."""
        return self if is_first or not self.parts.is_static else PlanLines(self.parts.without_plan())


def written(part: str, text: str) -> str:
    """A note on one line, the lines of a plan joined."""
    if part == "step":
        return one_line(text)
    # A semicolon within a line would divide it.
    return _LINK.join(line for each in text.split("\n") if (line := one_line(each.replace(";", ","))))


def read_written(part: str, text: str) -> str:
    """The note that `written` wrote."""
    if part == "step":
        return text.strip()
    return "\n".join(line for each in text.split(_LINK.strip()) if (line := each.strip()))


def read_line(part: str, text: str) -> str:
    """The line of a text that is read; empty for an empty one."""
    return f"{_HEADINGS[part]}{text}\n" if text else ""


NO_PLANS = PlanLines()
"""Every part is off."""
