"""Questions about a screen, from the phone's state, and their answers from a text by rule (VisionTasker, A3)."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from studies.vision_tasker.questions.truth import Truth
from studies.vision_tasker.questions.views import Line, has

GROUPS = {"switch": "status", "tab": "status", "beside": "content", "present": "content", "switches": "count",
          "rows": "count"}  # fmt: skip
"""Kind of a question → the paper's kind. Functions and summaries need a reader, not a rule."""

STATES, TEXTS = ("on", "off"), ("", "text")
"""Words of a line's head that are a state; heads of a text without a widget."""


@dataclass(frozen=True)
class Question:
    """`about`: the texts that it names. `options`: for a choice. `answer`: as `answer_of` returns it."""

    kind: str
    about: tuple[str, ...]
    answer: str


def questions_on(truth: Truth, elsewhere: Sequence[str]) -> Iterator[Question]:
    """All questions that the state of the phone answers. `elsewhere`: texts of other screens."""
    texts = [one.text for one in truth.elements if one.type == "TEXT"]
    counts = Counter(texts)
    for label, on in truth.states.items():
        yield Question("switch", (label,), STATES[not on])
    active = [label for label, is_active in truth.tabs if is_active]
    if len(active) == 1 and len(truth.tabs) >= 3:
        yield Question("tab", tuple(label for label, _ in truth.tabs), active[0])
    for name, *rest in truth.rows:
        if len(rest) == 1 and counts[name] == 1:
            yield Question("beside", (name,), rest[0])
    rng = random.Random(truth.name)
    if texts:
        yield Question("present", (rng.choice(texts),), "yes")
    absent = [text for text in elsewhere if not any(has(one, text) for one in texts)]
    if absent:
        yield Question("present", (rng.choice(absent),), "no")
    switches = sum(one.kind == "switch" for one in truth.widgets)
    if switches:
        yield Question("switches", (), str(switches))
    if len(truth.rows) >= 3:
        yield Question("rows", (), str(len(truth.rows)))


def is_right(question: Question, lines: Sequence[Line]) -> bool:
    """Whether the rule for this kind of question finds the answer in a text about the screen."""
    answer = _RULES[question.kind](question, lines)
    return answer is not None and (
        has(answer, question.answer) if question.kind == "beside" else answer == question.answer
    )


def _switch(question: Question, lines: Sequence[Line]) -> str | None:
    """The state on the line with the label, else on a line without a text next to it."""
    for index, line in enumerate(lines):
        if has(line.text, question.about[0]):
            near = [line, *(other for other in lines[index + 1 : index + 2] if not other.text),
                    *(other for other in lines[max(0, index - 1) : index] if not other.text)]  # fmt: skip
            states = [_state(one) for one in near if _state(one)]
            if states:
                return states[0]
    return None


def _state(line: Line) -> str | None:
    return next((word for word in line.head.split() if word in STATES), None)


def _tab(question: Question, lines: Sequence[Line]) -> str | None:
    chosen = {
        label for label in question.about for line in lines if "selected" in line.head.split() and has(line.text, label)
    }
    return chosen.pop() if len(chosen) == 1 else None


def _beside(question: Question, lines: Sequence[Line]) -> str | None:
    """The rest of the line with the name, else the text of the next line with one."""
    for index, line in enumerate(lines):
        words, size = line.text.split(), len(question.about[0].split())
        for start in range(len(words) - size + 1):
            if has(" ".join(words[start : start + size]), question.about[0]):
                rest = " ".join([*words[:start], *words[start + size :]])
                return rest or next((other.text for other in lines[index + 1 :] if other.text), None)
    return None


def _present(question: Question, lines: Sequence[Line]) -> str:
    return "yes" if any(has(line.text, question.about[0]) for line in lines) else "no"


def _switches(_: Question, lines: Sequence[Line]) -> str:
    return str(sum("switch" in line.head.split() for line in lines))


def _rows(_: Question, lines: Sequence[Line]) -> str:
    """The most lines of one kind in a block with a text in them or below; texts alone where nothing else is."""
    counts: Counter[tuple[int, str]] = Counter()
    for line, below in zip(lines, [*lines[1:], Line("", "", -1)], strict=False):
        is_named = bool(line.text) or (below.block == line.block and below.head in TEXTS and bool(below.text))
        if line.head != "title" and is_named:
            counts[line.block, "" if line.head in TEXTS else line.head] += 1
    with_icon = [count for (_, head), count in counts.items() if head]
    return str(max(with_icon or counts.values(), default=0))


_RULES = {
    "switch": _switch, "tab": _tab, "beside": _beside, "present": _present, "switches": _switches, "rows": _rows,
}  # fmt: skip
