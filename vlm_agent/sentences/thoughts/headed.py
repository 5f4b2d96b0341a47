"""The texts in sources and targets of single steps (Auto-UI), with headings like those of its other parts.

    source   … Goal: GOAL Action Result: AR Screen Description: SD Screen: …
    target   Action Think: AT ; Action Description: AD ; Action Plan: […] ; Action Decision: ACTION

A read part without a text is left out; a learned one keeps its heading.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.texts.lines import one_line

_READ = {"result": "Action Result:", "screen": "Screen Description:"}
_LEARNED = {"think": "Action Think:", "action": "Action Description:"}
LINK = " ;"

PHRASES = (*_READ.values(), *_LEARNED.values(), LINK)
"""The fixed texts, for a tokenizer trained from scratch."""

_MARKS = ("Action Plan:", "Action Decision:", *_LEARNED.values())
_A_MARK = re.compile("|".join(map(re.escape, _MARKS)))
_MARK_AND_COLONS = re.compile("({}):+".format("|".join(re.escape(mark.removesuffix(":")) for mark in _MARKS)))


@dataclass(frozen=True)
class HeadedThoughts:
    """`parts`: the parts that are on."""

    parts: CoatRecipe = CoatRecipe()  # noqa: RUF009 (frozen)

    def read(self, notes: Mapping[str, str]) -> list[str]:
        """The parts of a source, to be joined by spaces."""
        segments = [segment(part, notes.get(part, "")) for part in _READ if part in self.parts.read]
        return [one.removeprefix(" ") for one in segments if one]

    def learned(self, notes: Mapping[str, str]) -> list[str]:
        """The segments before the plan: heading, text and link of each part. They join without a separator."""
        segments = list[str]()
        for part in self.parts.learned:
            text = segment(part, notes.get(part, ""))
            heading = _LEARNED[part] if not segments else f" {_LEARNED[part]}"
            segments += [heading, text, LINK] if text else [heading, LINK]
        return segments

    def split(self, answer: str) -> tuple[dict[str, str], str]:
        """The thoughts, and what follows them: plan and decision. Without learned parts: none, and the whole answer.

        Plan and decision begin with the first of their headings; an answer without one has thoughts only.
        """
        if not self.parts.learned:
            return {}, answer
        marks = [at for mark in _MARKS[:2] if (at := answer.find(mark)) >= 0]
        end = min(marks, default=len(answer))
        return self._texts(answer[:end]), answer[end:]

    def _texts(self, text: str) -> dict[str, str]:
        """The text of each learned part that has its heading, up to the next heading."""
        headings = [(match.start(), match.end(), match[0]) for match in _A_MARK.finditer(text)]
        found = dict[str, str]()
        for (_, start, heading), (end, _, _) in pairwise([*headings, (len(text), 0, "")]):
            name = next(name for name, own in _LEARNED.items() if own == heading)
            if name in self.parts.learned and name not in found:
                found[name] = text[start:end].strip().removesuffix(LINK.strip()).strip()
        return found


NO_THOUGHTS = HeadedThoughts()
"""Every part is off."""


def segment(part: str, text: str) -> str:
    """A text with the space before it, one that is read with its heading. `part`: a part of `CoatRecipe`. Empty for an
    empty text."""
    line = one_line(text) if part in _READ else _without_marks(text)
    if not line:
        return ""
    return f" {_READ[part]} {line}" if part in _READ else f" {line}"


def _without_marks(text: str) -> str:
    """`text` on one line. Headings lose their colon, so that a target splits where it was joined."""
    return _MARK_AND_COLONS.sub(r"\1", one_line(text))
