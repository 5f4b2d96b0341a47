"""Names of elements, with an ordinal where several have the same: `Install (2)` is the second one named Install."""

import re
from collections.abc import Callable

Find = Callable[[str], list[int]]
"""The numbers of the elements with this name, in order; without ordinals."""

_ORDINAL = re.compile(r"(.+) \(([0-9]{1,6})\)", re.ASCII | re.DOTALL)


def names_of(number: int, name: str, find: Find) -> list[str]:
    """The names of an element, without and with an ordinal."""
    return [name, *(f"{name} ({place})" for place, same in enumerate(find(name), 1) if same == number)]


def called(name: str, find: Find) -> list[int]:
    """The numbers of the elements with a name; if none has it, the one that its ordinal counts from 1."""
    if (found := find(name)) or not (match := _ORDINAL.fullmatch(name)):
        return found
    place = int(match[2])
    return find(match[1])[place - 1 : place]
