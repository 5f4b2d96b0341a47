"""Notes of a step in sentences (`data.notes`), and the lines of references.

A trajectory has a line for each note:

    Goal: …
    Plan: a; b            use `first`, at later steps: the note of the first step
    Done: …               earlier steps in words: their notes `step`, if these are on
    Result: …             read: the result of the previous action
    Screen: …
    Plan: a; b            of the current step alone
    Step: a
    <p id=0 …             html: the screen's elements, a line each
    SCREEN cue
    a; b                  learned: plan, of the current step alone
    a                     step
    …                     think
    …                     action
    ACTION END

Read lines have headings, and an empty one is left out. Learned lines have none, so that each costs one token, and an
empty one stays. Learned notes of earlier steps remain before the later actions: one forward pass learns all actions.

Sources and targets of single steps (Auto-UI) have headings like those of their other parts:

    source   … Goal: GOAL Action Result: … Screen Description: … Screen: …
    target   Action Think: … ; Action Description: … ; Action Plan: […] ; Action Decision: ACTION

A read note without a text is left out; a learned one keeps its heading. Without notes, a sentence is the same as
without this module. The result of an action describes the next screen, so no input of the same step has it.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from vlm_agent.action_languages.language import DECISION
from vlm_agent.episodes import Episode, Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.notes import NOTES, NoteUse
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.segments import ASSISTANT, Segment
from vlm_agent.texts.lines import one_line
from vlm_agent.texts.phone import result_text, screen_text


class Form(NamedTuple):
    """How a note is written. `heading`: before a read line of a trajectory. `in_steps`: the heading in sources and
    targets of single steps; empty: they do not have the note. `role`: of its tokens where it is learned; None: it never
    is. `is_list`: its lines are joined to one. `has_lines`: its lines stay."""

    heading: str = ""
    in_steps: str = ""
    role: str | None = None
    is_list: bool = False
    has_lines: bool = False


FORMS = {
    "result": Form("Result: ", "Action Result:"),
    "screen": Form("Screen: ", "Screen Description:"),
    "plan": Form("Plan: ", role="plan", is_list=True),
    "step": Form("Step: ", role="plan"),
    "html": Form(has_lines=True),
    "think": Form(in_steps="Action Think:", role="thought"),
    "action": Form(in_steps="Action Description:", role="thought"),
}
"""The notes of `NOTES`, in the order in which they are read, and written."""

IN_WORDS, DESCRIPTION = "step", "action"
"""The note that stands for an earlier step in words. It describes the action, too, where no other note does."""

_LINK = "; "


def as_line(name: str, text: str) -> str:
    """A note on one line, without a line feed; one that `has_lines` without the last line feed."""
    if FORMS[name].has_lines:
        return text.removesuffix("\n")
    if not FORMS[name].is_list:
        return one_line(text)
    # A semicolon within a line would divide it.
    return _LINK.join(line for each in text.split("\n") if (line := one_line(each.replace(";", ","))))


def from_line(name: str, line: str) -> str:
    """The note that `as_line` wrote."""
    if not FORMS[name].is_list:
        return line.strip()
    return "\n".join(item for each in line.split(_LINK.strip()) if (item := each.strip()))


@dataclass(frozen=True)
class UsedNotes:
    """`uses`: `data.notes`. Names are in the order of `FORMS`."""

    uses: Mapping[str, NoteUse] = field(default_factory=dict)

    @cached_property
    def read_names(self) -> tuple[str, ...]:
        """The notes that are read at the step that they belong to."""
        return self._named("read")

    @cached_property
    def learned_names(self) -> tuple[str, ...]:
        """The notes that an answer has before its action."""
        return self._named("learned", "first")

    @cached_property
    def first_names(self) -> tuple[str, ...]:
        """The notes that are learned at the first step of an episode and read at later ones."""
        return self._named("first")

    @property
    def reads_phone(self) -> bool:
        """Whether a note is read that any phone gives."""
        return any(NOTES[name].on_phone for name in self.read_names)

    @property
    def reads_elements(self) -> bool:
        """Whether a note is computed from the elements of screens."""
        return any(NOTES[name].of_elements for name in self.read_names)

    def _named(self, *uses: str) -> tuple[str, ...]:
        return tuple(name for name in FORMS if name in self.uses and self.uses[name].use in uses)

    def _written(self, name: str, text: str) -> Segment:
        return Segment(text, ASSISTANT, role=FORMS[name].role, weight=self.uses[name].weight)


@dataclass(frozen=True)
class NoteLines(UsedNotes):
    """The notes of a trajectory. `may_miss`: a read note that a step lacks is left out, in place of an error.
    `max_tokens`: the limit of the notes of an answer."""

    may_miss: bool = False
    max_tokens: int = 0

    @classmethod
    def of(cls, data: DataRecipe) -> Self:
        return cls(data.notes, data.missing_notes == "empty", data.max_note_tokens)

    def at(self, is_first: bool) -> Self:
        """The lines of an answer at the first step of an episode, or at a later one."""
        if is_first or not self.first_names:
            return self
        return replace(self, uses={name: use for name, use in self.uses.items() if name not in self.first_names})

    def read(self, episode: Episode, number: int, is_past: bool = False) -> list[str]:
        """The lines before the screen of a step, each with its line feed. Raises UserError without their notes."""
        names = _kept(self.read_names, is_past)
        return self._headed(names, notes_at(episode, number, names)) if names else []

    def first(self, notes: Mapping[str, str]) -> list[str]:
        """The lines after the goal, at a step that is not the first one. `notes`: those of the first step."""
        return self._headed(self.first_names, notes)

    def _headed(self, names: Iterable[str], notes: Mapping[str, str]) -> list[str]:
        absent = [name for name in names if name not in notes]
        if absent and not self.may_miss:
            raise UserError(
                f"data.notes.{absent[0]}: {self.uses[absent[0]].use} reads a note of a recorded episode, and this step "
                "has none; a phone has none either, so act with a run that learned its notes, or evaluate on shards "
                "with notes"
            )
        lines = ((FORMS[name].heading, as_line(name, notes.get(name, ""))) for name in names)
        return [f"{heading}{line}\n" for heading, line in lines if line]

    def learned(self, notes: Mapping[str, str], is_past: bool = False) -> list[str]:
        """The lines before an action, each with its line feed."""
        return [f"{as_line(name, notes.get(name, ''))}\n" for name in _kept(self.learned_names, is_past)]

    def supervised(self, notes: Mapping[str, str]) -> list[Segment]:
        """The lines of `learned` as segments with a loss."""
        return [self._written(name, line) for name, line in zip(self.learned_names, self.learned(notes), strict=True)]

    def in_words(self, notes: Mapping[str, str]) -> str:
        """An earlier step on one line; empty where its action stands for it."""
        return as_line(IN_WORDS, notes.get(IN_WORDS, "")) if IN_WORDS in self.uses else ""

    def split(self, answer: str) -> tuple[dict[str, str], str]:
        """The notes of an answer, with `DESCRIPTION`, and the text of its action. Without learned notes: none, and the
        whole answer.

        The action follows the line feed of the last note. An answer with fewer lines has the first notes.
        """
        names = self.learned_names
        if not names:
            return {}, answer
        *lines, action = answer.split("\n", len(names))
        notes = {name: from_line(name, line) for name, line in zip(names, lines, strict=False)}
        if IN_WORDS in notes:
            notes.setdefault(DESCRIPTION, notes[IN_WORDS])
        # SentencePiece's tokenizers write a space before each segment.
        return notes, action.lstrip(" ")

    def ending(self, text: str, of_action: Callable[[str], str | None]) -> str | None:
        """Text that completes `text` to an answer; any note is allowed. `of_action`: `ActionLanguage.ending`."""
        missing = len(self.learned_names) - text.count("\n")
        if missing > 0:
            action = of_action("")
            return None if action is None else "\n" * missing + action
        return of_action(self.split(text)[1])


def _kept(names: Sequence[str], is_past: bool) -> Sequence[str]:
    """The notes that a step still has when it is shown before a later one."""
    return [name for name in names if not NOTES[name].fades] if is_past else names


_OTHER_MARKS = ("Action Plan:", DECISION)
_MARKS = (*_OTHER_MARKS, *(form.in_steps for form in FORMS.values() if form.in_steps and form.role))
_A_MARK = re.compile("|".join(map(re.escape, _MARKS)))
# Headings in a text lose their colon, so that a target splits where it was joined.
_MARK_AND_COLONS = re.compile("({}):+".format("|".join(re.escape(mark.removesuffix(":")) for mark in _MARKS)))


@dataclass(frozen=True)
class HeadedNotes(UsedNotes):
    """The notes of a source and a target."""

    LINK = " ;"

    PHRASES = (*(form.in_steps for form in FORMS.values() if form.in_steps), LINK)
    """The fixed texts, for a tokenizer trained from scratch."""

    def read(self, notes: Mapping[str, str]) -> list[str]:
        """The parts of a source, to be joined by spaces."""
        lines = ((FORMS[name].in_steps, one_line(notes.get(name, ""))) for name in self.read_names)
        return [f"{heading} {line}" for heading, line in lines if line]

    def supervised(self, notes: Mapping[str, str]) -> list[Segment]:
        """The start of a target: heading, text and link of each note. They join without a separator."""
        segments: list[Segment] = []
        for name in self.learned_names:
            heading, line = FORMS[name].in_steps, _MARK_AND_COLONS.sub(r"\1", one_line(notes.get(name, "")))
            parts = [f" {heading}" if segments else heading, *([f" {line}"] if line else []), self.LINK]
            segments += [self._written(name, part) for part in parts]
        return segments

    def split(self, answer: str) -> tuple[dict[str, str], str]:
        """The notes, and what follows them: plan and decision. Without learned notes: none, and the whole answer.

        Plan and decision begin with the first of their headings; an answer without one has notes only.
        """
        if not self.learned_names:
            return {}, answer
        marks = [at for mark in _OTHER_MARKS if (at := answer.find(mark)) >= 0]
        end = min(marks, default=len(answer))
        return self._texts(answer[:end]), answer[end:]

    def _texts(self, text: str) -> dict[str, str]:
        """The text of each learned note that has its heading, up to the next heading."""
        headings = [(match.start(), match.end(), match[0]) for match in _A_MARK.finditer(text)]
        found = dict[str, str]()
        for (_, start, heading), (end, _, _) in pairwise([*headings, (len(text), 0, "")]):
            name = next(name for name, form in FORMS.items() if form.in_steps == heading)
            if name in self.learned_names and name not in found:
                found[name] = text[start:end].strip().removesuffix(self.LINK.strip()).strip()
        return found


# Where notes come from.


def known_notes(screens: Sequence[Screen]) -> list[Mapping[str, str]]:
    """The notes of consecutive screens from the first of an episode on, with those that any phone gives: each is
    recorded, else computed (`texts/phone.py`); one that neither the source nor a phone gives is empty."""
    return [_known(before, screen) for before, screen in zip([None, *screens], screens, strict=False)]


_RECORDED = tuple(name for name, rules in NOTES.items() if not rules.of_elements)


def notes_at(episode: Episode, number: int, names: Sequence[str] = _RECORDED) -> Mapping[str, str]:
    """The notes that are known at step `number` of an episode, as in `known_notes`; only `names` are computed."""
    return _known(episode.steps[number - 1].screen if number else None, recorded_screen(episode, number), names)


def _known(before: Screen | None, screen: Screen, names: Sequence[str] = _RECORDED) -> Mapping[str, str]:
    """`before`: the previous screen, None at the first step."""
    known = dict(screen.notes)
    if "screen" in names and "screen" not in known:
        known["screen"] = screen_text(screen)
    if "result" in names and "result" not in known:
        known["result"] = "" if before is None else result_text(before, screen)
    if "html" in names:
        known["html"] = screen_html(screen)
    return known


def training_notes(episode: Episode, used: UsedNotes, control: str | None) -> Episode:
    """The notes of an episode of training under `data.control`. Steps without notes that any phone gives have empty
    ones, which `data.missing_notes` allows; so none is computed."""
    if not used.uses:
        return episode
    empty = {name: "" for name, rules in NOTES.items() if rules.on_phone}
    steps = (replace(step, notes={**empty, **step.notes}) for step in episode.steps)
    episode = replace(episode, steps=tuple(steps))
    return with_shuffled_results(episode) if control == "shuffled_results" else episode


def with_shuffled_results(episode: Episode) -> Episode:
    """The episode with the result of each action replaced as `shuffled_results` does, and the notes of any phone."""
    known = [notes_at(episode, number) for number in range(len(episode))]
    results = shuffled_results([each["result"] for each in known[1:]], episode.goal)
    steps = (
        replace(step, notes={**step.notes, "screen": each["screen"], "result": result})
        for step, each, result in zip(episode.steps, known, [*results, ""], strict=True)
    )
    return replace(episode, steps=tuple(steps))


def with_shuffled_notes(screens: Sequence[Screen], goal: str) -> list[Screen]:
    """Consecutive screens from the first of an episode on, with the notes of `with_shuffled_results`."""
    known = known_notes(screens)
    results = ["", *shuffled_results([each["result"] for each in known[1:]], goal)]
    return [
        replace(screen, notes={**each, "result": result})
        for screen, each, result in zip(screens, known, results, strict=True)
    ]


def shuffled_results(results: Sequence[str], goal: str) -> list[str]:
    """For the result of each action that of an earlier action of the episode, at random; empty for the first.

    Results of later actions would describe screens that are not shown yet. The choice depends on goal and step alone.
    """
    return [
        results[random.Random(f"{goal} {number} result").randrange(number)] if number else ""  # noqa: S311 (no secret)
        for number in range(len(results))
    ]


# References.


class ReferenceLines:
    """Demonstrations with similar goals (`data.references`), which a trajectory reads after its goal:

        Similar: the nearest goal: first action; second action
        Similar: the second nearest goal: …

    The actions are words of earlier steps (`TrajectorySentences.in_words`). This class has none; subclasses find them.
    """

    def lines(self, goal: str, without: str) -> list[str]:
        """A line for each reference of `goal`, with its line feed. `without`: the id of the episode of the sentence,
        which is no reference; empty on a phone."""
        return []

    def has_goal(self, goal: str, without: str) -> bool | None:
        """Whether a reference has the same goal; None without references."""
        return None

    @property
    def digest(self) -> bytes:
        """The digest of what decides the lines beside the training episodes; empty without references."""
        return b""

    def write(self, run: Path) -> None:
        """Writes into the run folder what an agent of the run needs of them."""


NO_REFERENCES = ReferenceLines()


def reference_line(goal: str, actions: Sequence[str]) -> str:
    """`actions`: in words, each on one line."""
    return f"Similar: {one_line(goal)}: {_LINK.join(actions)}\n"
