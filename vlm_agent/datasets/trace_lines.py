"""The lines of a trace's `steps.jsonl`: written, and read with nothing taken on trust (the format: `traces.py`)."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets import DatasetError, step_checks
from vlm_agent.episodes import Action, ActionKind, UiElement

DONE, IN_DOUBT, FAILED, WITHHELD, UNPARSED = OUTCOMES = ("done", "in_doubt", "failed", "withheld", "unparsed")
"""Of a step: done; cut off, so that it may have been done; the phone did not take it; not allowed, so not tried; what
was said is no action. The first two are what an episode is made of."""


LONGEST_SAID = 10_000
"""In characters; a server that runs wild says more."""


@dataclass(frozen=True)
class TraceStep:
    """`screen` is the name of its file. `elements` is None where the phone did not tell; `tokens` are (read, said)."""

    number: int
    screen: str
    activity: str
    elements: tuple[UiElement, ...] | None
    said: str
    action: Action | None
    outcome: str = IN_DOUBT
    tokens: tuple[int, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_in_episode(self) -> bool:
        return self.action is not None and self.outcome in (DONE, IN_DOUBT)


@dataclass(frozen=True)
class Line:
    """Line `number` (from 0) at byte `offset`. `read` is a step, an end, or an outcome (step, outcome); None, and
    `error` says why, where it is none of them."""

    number: int
    offset: int
    checksum: int
    read: TraceStep | dict | tuple[int, str] | None
    error: str | None = None


def step_line(step: TraceStep) -> dict:
    """As JSON, without the outcome."""
    elements = None if step.elements is None else [[*one.box, one.text, one.type] for one in step.elements]
    return {
        "step": step.number,
        "screen": step.screen,
        "activity": step.activity,
        "elements": elements,
        "said": step.said[:LONGEST_SAID].encode("utf-8", "replace").decode(),
        "action": None if step.action is None else _action_json(step.action),
        "tokens": step.tokens,
        "seconds": step.seconds,
    }


def read_lines(path: Path) -> Iterator[Line]:
    """All whole lines; none where there is no file."""
    if not path.is_file():
        return
    offset = 0
    with path.open("rb") as file:
        for number, data in enumerate(file):
            if data.endswith(b"\n"):
                yield _line(number, offset, data)
            offset += len(data)


def read_text(value: object, key: str) -> str:
    """Raises DatasetError for what is no text, or too much of it."""
    if not isinstance(value, str):
        raise DatasetError(f"{key} is {value!r}, expected a string")
    try:
        step_checks.check_text(len(value.encode("utf-8")), key)
    except UnicodeEncodeError as error:
        raise DatasetError(f"{key} is not valid Unicode: {error.reason}") from None
    return value


def _action_json(action: Action) -> dict:
    if action.kind is ActionKind.DUAL_POINT:
        return {"kind": int(action.kind), "touch_yx": action.touch_yx, "lift_yx": action.lift_yx}
    return {"kind": int(action.kind)} | ({"text": action.text} if action.kind is ActionKind.TYPE else {})


def _line(number: int, offset: int, data: bytes) -> Line:
    checksum = zlib.crc32(data)
    try:
        return Line(number, offset, checksum, _read(json.loads(data)))
    except DatasetError as error:
        return Line(number, offset, checksum, None, str(error))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        return Line(number, offset, checksum, None, f"this is no line of a trace: {type(error).__name__} {error}")


def _read(content: dict) -> TraceStep | dict | tuple[int, str]:
    if "end" in content:
        return dict(content)
    if "of" not in content:
        return _read_step(content)
    if content["outcome"] not in OUTCOMES:
        raise DatasetError(f"outcome is {content['outcome']!r}; there are {', '.join(OUTCOMES)}")
    return _number(content, "of"), content["outcome"]


def _read_step(content: dict) -> TraceStep:
    rows, tokens = content["elements"], content["tokens"]
    return TraceStep(
        _number(content, "step"),
        read_text(content["screen"], "screen"),
        read_text(content["activity"], "activity"),
        None if rows is None else _elements(rows),
        read_text(content["said"], "said"),
        None if content["action"] is None else _action(content["action"]),
        tokens=None if tokens is None else (int(tokens[0]), int(tokens[1])),
        seconds={name: float(value) for name, value in content["seconds"].items()},
    )


def _elements(rows: list) -> tuple[UiElement, ...]:
    boxes = [float(value) for row in rows for value in row[:4]]
    texts = [[read_text(row[at], "elements") for row in rows] for at in (4, 5)]
    return step_checks.elements_of(boxes, *texts, "elements")


def _action(content: dict) -> Action:
    kind = step_checks.action_kind(_number(content, "kind"), "kind")
    if kind is ActionKind.TYPE:
        return Action.type_text(read_text(content["text"], "text"))
    if kind is ActionKind.DUAL_POINT:
        keys = ("touch_yx", "lift_yx")
        return step_checks.gesture(*([float(value) for value in content[key]] for key in keys), keys)
    return Action(kind)


def _number(content: dict, key: str) -> int:
    value = content[key]
    if type(value) is not int or not 0 <= value < step_checks.MAX_STEPS:
        raise DatasetError(f"{key} is {value!r}, expected a number from 0 to {step_checks.MAX_STEPS - 1}")
    return value
