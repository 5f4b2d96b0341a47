"""Texts of phones and models as parts of a line in a prompt or sentence."""

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
