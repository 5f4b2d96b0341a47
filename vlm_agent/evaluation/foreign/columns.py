"""The columns of predictions of other programs."""

import difflib
import reprlib
from collections.abc import Iterable
from pathlib import Path

from vlm_agent.errors import DatasetError

EPISODE, STEP, TEXT, KIND, TYPED = "episode_id", "step", "text", "action_type", "typed_text"
POINTS = ("touch_yx", "lift_yx")
COORDINATES = {"touch_yx": ("touch_y", "touch_x"), "lift_yx": ("lift_y", "lift_x")}
"""A point is one column with a list (y, x), or two columns with numbers."""

NUMBERS = (STEP, KIND, *(name for names in COORDINATES.values() for name in names))
"""The columns whose text in a CSV file may be a number; an action type may also be a name."""

KNOWN = (EPISODE, STEP, TEXT, KIND, TYPED, *POINTS, *NUMBERS[2:])

_OF_ACTIONS = (TYPED, *POINTS, *NUMBERS[2:])
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
