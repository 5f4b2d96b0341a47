"""Texts of phones and models as parts of a line in a prompt or sentence, and answers in a code fence."""

import re

MOST_SHOWN = 2_000
"""Characters of a text that prompts have: later ones repeat it."""

_TAGS = str.maketrans({"<": "&lt;", ">": "&gt;"})


def one_line(text: str) -> str:
    """`text` without white space at its ends, every other run of white space as one space.

    A lone surrogate, which a model may write and no request can hold, becomes a question mark.
    """
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def printable(text: str) -> str:
    """The beginning of `text` on one line."""
    return one_line(text[:MOST_SHOWN])


def without_tags(text: str) -> str:
    """`text` with entities in place of `<` and `>`, so that it is no element beside a screen as HTML."""
    return text.translate(_TAGS)


_OPENING = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\r?")


def in_fence(text: str) -> str | None:
    """The content of the code fence that is the whole answer; None for any other answer."""
    first, newline, rest = text.strip().partition("\n")
    opening = _OPENING.fullmatch(first)
    if opening is None or not newline or not rest.endswith(opening[1]):
        return None
    content = rest.removesuffix(opening[1]).rstrip(" \t").removesuffix("\n").removesuffix("\r")
    return None if opening[1] in content else content
