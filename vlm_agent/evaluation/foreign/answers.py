"""The columns of another program's predictions, and a row of them as episode id, step and answer."""

import difflib
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets.sources import checks
from vlm_agent.episodes import NO_POINT, Action, ActionKind
from vlm_agent.errors import DatasetError

EPISODE, STEP, TEXT, KIND, TYPED = "episode_id", "step", "text", "action_type", "typed_text"
COORDINATES = {"touch_yx": ("touch_y", "touch_x"), "lift_yx": ("lift_y", "lift_x")}
"""A point is one column with a list (y, x), or two columns with numbers."""

NUMBERS = (STEP, KIND, *(name for names in COORDINATES.values() for name in names))
"""The columns whose text in a CSV file may be a number; an action type may also be a name."""

KNOWN = (EPISODE, STEP, TEXT, KIND, TYPED, *COORDINATES, *NUMBERS[2:])

_OF_ACTIONS = (TYPED, *COORDINATES, *NUMBERS[2:])
_SIMILARITY = 0.75


def shown(value: object) -> str:
    """A value of the file in a message: short, and without control characters."""
    return reprlib.repr(value)


class Columns:
    """The names of the columns in the file `path`.

    `add` takes the names of one more row. `check` raises DatasetError if they name no step or no action, or if one is
    probably misspelt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[str, None] = {}

    @classmethod
    def checked(cls, path: Path, names: Iterable[str]) -> "Columns":
        """The columns of a header."""
        columns, names = cls(path), list(names)
        if double := [name for name in KNOWN if names.count(name) > 1]:
            raise DatasetError(f"{path} has two columns {double[0]}")
        columns.add(names)
        columns.check()
        return columns

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def known(self) -> list[str]:
        """The columns that are read."""
        return [name for name in self._names if name in KNOWN]

    @property
    def others(self) -> list[str]:
        """The columns that are not read."""
        return [name for name in self._names if name not in KNOWN]

    def add(self, names: Iterable[str]) -> None:
        self._names.update(dict.fromkeys(names))

    def check(self) -> None:
        if not self._names:
            raise DatasetError(f"{self._path} holds no row")
        for name in (EPISODE, STEP):
            if name not in self:
                raise DatasetError(f"{self._path} has no column {name}; its columns are {self._listed()}")
        self._check_spelling()
        if KIND not in self and TEXT not in self:
            raise DatasetError(
                f"{self._path} has no column for actions: {KIND} with touch_yx, lift_yx and {TYPED}, or {TEXT}; its "
                f"columns are {self._listed()}"
            )
        if KIND not in self and (unused := [name for name in _OF_ACTIONS if name in self]):
            raise DatasetError(f"{self._path} has the column {unused[0]}, which needs {KIND}")
        for point, axes in COORDINATES.items():
            self._check_point(point, axes)

    def _check_point(self, point: str, axes: tuple[str, str]) -> None:
        present = [name for name in axes if name in self]
        if present and point in self:
            raise DatasetError(f"{self._path} has the columns {point} and {present[0]}; keep one form of the point")
        if len(present) == 1:
            other = next(name for name in axes if name not in self)
            raise DatasetError(f"{self._path} has the column {present[0]} without {other}")

    def _check_spelling(self) -> None:
        absent = [name for name in KNOWN if name not in self]
        for name in self.others:
            if nearest := difflib.get_close_matches(name.strip().lower(), absent, n=1, cutoff=_SIMILARITY):
                raise DatasetError(
                    f"{self._path} has an unknown column {shown(name)}; did you mean {nearest[0]}? Rename the column"
                )

    def _listed(self) -> str:
        return ", ".join(map(shown, list(self._names)[:20]))


_LARGEST_STEP = 1 << 31
TAP, SWIPE = "tap", "swipe"
KINDS = {name: kind for kind in ActionKind for name in (kind.name.lower(), kind.short_name)}
"""Action type by name, beside `TAP` and `SWIPE`; AITW's own names are the longer ones."""


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """`where`: its row, for messages. `text` is None for an empty cell, and `action` for no action, or where it is to
    be decoded from `text`."""

    where: str
    text: str | None
    action: Action | None


def episode_and_step(values: Mapping[str, object]) -> tuple[str, int]:
    """Raises DatasetError that names the column."""
    return _episode_id(values.get(EPISODE)), _step(values.get(STEP))


def answer(values: Mapping[str, object], columns: Columns, where: str) -> ForeignAnswer:
    """The action of the fields of Android in the Wild, if the file has such columns. Raises DatasetError that names
    the column."""
    written = values.get(TEXT)
    text = None if written is None else _text(written, TEXT)
    return ForeignAnswer(where, text, _action(values, columns) if KIND in columns else None)


def _episode_id(value: object) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, float):
        raise DatasetError(
            f"{EPISODE} is {shown(value)}, expected text; an id that was read as a floating-point number lost digits"
        )
    if value is None or value == "":
        raise DatasetError(f"{EPISODE} is empty")
    return _text(value, EPISODE)


def _step(value: object) -> int:
    number = _whole(value)
    if number is None or not -_LARGEST_STEP <= number < _LARGEST_STEP:
        raise DatasetError(f"{STEP} is {_or_empty(value)}, expected a whole number from 0")
    return number


def _whole(value: object) -> int | None:
    """pandas writes whole numbers as 3.0 in a column with an empty cell."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise DatasetError(f"{column} is {shown(value)}, expected text")
    return value


def _action(values: Mapping[str, object], columns: Columns) -> Action | None:
    """None without an action type: the program's answer was no action."""
    value = values.get(KIND)
    if value is None or value == "":
        return None
    name, kind = _kind(value)
    touch = _point(values, columns, "touch_yx", name) if kind.facts.points > 0 else NO_POINT
    lift = touch if name == TAP else NO_POINT
    if kind.facts.points > 1 and name != TAP:
        lift = _point(values, columns, "lift_yx", name)
    return Action(kind, touch, lift, _typed(values, columns, name) if kind.facts.has_text else "")


def _kind(value: object) -> tuple[str, ActionKind]:
    """The name in the file, or that of a number."""
    number = _whole(value)
    if number in list(ActionKind):
        return ActionKind(number).name.lower(), ActionKind(number)
    name = value.strip().lower().replace(" ", "_").replace("-", "_") if isinstance(value, str) else ""
    if name in (TAP, SWIPE):
        return name, ActionKind.DUAL_POINT
    if name not in KINDS:
        numbers = ", ".join(f"{kind.value} {kind.name}" for kind in checks.AITW_KINDS)
        raise DatasetError(f"{KIND} is {shown(value)}, expected a number or name of {numbers}, or {', '.join(_OTHERS)}")
    return name, KINDS[name]


_OTHERS = (TAP, SWIPE, *(kind.short_name for kind in ActionKind if not kind.is_in_aitw))


def _point(values: Mapping[str, object], columns: Columns, column: str, name: str) -> tuple[float, float]:
    if column in columns:
        numbers = values.get(column)
        if not isinstance(numbers, list | tuple) or len(numbers) != 2:
            raise DatasetError(f"{column} is {_or_empty(numbers)}, expected the two numbers (y, x) of a {name}")
        y, x = (_fraction(value, column, name) for value in numbers)
        return y, x
    of_y, of_x = COORDINATES[column]
    if of_y not in columns:
        raise DatasetError(f"a {name} needs the column {column}, or the columns {of_y} and {of_x}")
    return _fraction(values.get(of_y), of_y, name), _fraction(values.get(of_x), of_x, name)


def _fraction(value: object, column: str, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or (value != value) or abs(value) == math.inf:
        raise DatasetError(f"{column} is {_or_empty(value)}, expected a number: a {name} has a point")
    if not 0 <= value <= 1:  # before its conversion: a whole number may be too large for one
        raise DatasetError(f"{column} is {shown(value)}; points are fractions of the screen, 0 to 1")
    return float(value)


def _typed(values: Mapping[str, object], columns: Columns, name: str) -> str:
    if TYPED not in columns:
        raise DatasetError(f"the action {name} needs the column {TYPED}; leave its cells empty where it is not known")
    value = values.get(TYPED)
    return "" if value is None else checks.text_of(_text(value, TYPED), TYPED)


def _or_empty(value: object) -> str:
    return "empty" if value is None or value == "" else shown(value)
