"""Imports a table of demonstrations: CSV with the columns app, task and traces, as VisionTasker publishes one.

    app,task,traces
    Clock,set an alarm,tap['Clock'] - tap['Alarm']

`traces` has the actions of one demonstration, separated by ` - `. In the published table they are Chinese, and a name
in `['…']` may itself contain the separator. Actions of its two known forms are written as those of `record`, in
Chinese; every other action stays as it is.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.agents.examples.store import LONGEST_LINE, Demonstrations, DemonstrationsError, checked

COLUMNS = ("app", "task", "traces")
LARGEST = 16 << 20
"""In bytes."""

_SEPARATOR = " - "
_BRACKET = re.compile(r"\[|'\]")
_TAP = re.compile(r"点击\s*\['(.*)'\]", re.DOTALL)
_TYPE = re.compile(r"在输入框\s*[:：]\s*\['(.*?)'\]\s*输入\s*[（(]\s*[“\"](.*?)[”\"]\s*[)）]\s*(并回车)?", re.DOTALL)


@dataclass(frozen=True)
class PublishedDemonstration:
    number: int
    app: str
    goal: str
    lines: tuple[str, ...]


def import_table(path: Path, store: Demonstrations) -> tuple[int, int]:
    """Adds every row; returns the numbers of rows and of those that the store did not have.

    Raises DemonstrationsError, before the store changes, for a file that is not such a table, and with file and row for
    a demonstration that is not stored.
    """
    rows = list(read_table(path))
    for row in rows:
        try:
            checked(row.goal, row.app, row.lines)
        except ValueError as error:
            raise DemonstrationsError(f"{path}, row {row.number}: {error}; correct the row or remove it") from None
    before = len(store.all())
    store.add_all([(row.goal, row.app, row.lines) for row in rows])
    return len(rows), len(store.all()) - before


def read_table(path: Path) -> Iterator[PublishedDemonstration]:
    """The rows in order. Raises DemonstrationsError with file and row."""
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise DemonstrationsError(
                f"{path} has no column {', '.join(missing)}; its first line must name {', '.join(COLUMNS)}"
            )
        for number, row in enumerate(reader, 2):
            if any(row.get(None, ())):
                raise DemonstrationsError(f"{path}, row {number}: more values than columns; quote a text with commas")
            app, goal, traces = (row[column] for column in COLUMNS)
            if app is None or not (goal or "").strip() or not (traces or "").strip():
                raise DemonstrationsError(
                    f"{path}, row {number}: the app, the task or its actions are missing; complete the row"
                )
            yield PublishedDemonstration(number, app, goal, tuple(_line(part) for part in _parts(traces)))
    except csv.Error as error:
        raise DemonstrationsError(f"{path}, line {reader.line_num}: not CSV ({error}); save the table as CSV") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise DemonstrationsError(f"{path} has more than {LARGEST >> 20} MiB, which is no table of demonstrations")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DemonstrationsError(f"{path} is not a table in UTF-8 ({error.reason}); save it as CSV in UTF-8") from None
    except OSError as error:
        raise DemonstrationsError(f"{path} cannot be read: {error.strerror}") from None


def _parts(traces: str) -> list[str]:
    """The text between separators that are in no name: after one, a bracket opens before the next one closes."""
    parts: list[list[str]] = []
    next_bracket = ""
    for piece in reversed(" ".join(traces.split()).split(_SEPARATOR)):
        if next_bracket == "']":
            parts[-1].append(piece)
        else:
            parts.append([piece])
        brackets = _BRACKET.findall(piece)
        next_bracket = brackets[0] if brackets else next_bracket
    return [_SEPARATOR.join(reversed(part)) for part in reversed(parts)]


def _line(text: str) -> str:
    if len(text) > LONGEST_LINE:  # the store refuses it
        return text
    if found := _TAP.fullmatch(text.strip()):
        return f"点击“{found[1]}”"
    if found := _TYPE.fullmatch(text.strip()):
        return f"在“{found[1]}”输入“{found[2]}”{'并回车' if found[3] else ''}"
    return text
