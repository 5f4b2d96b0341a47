"""One spelling for texts that are compared with lists of words: those of the purchase guard, and of secrets."""

import unicodedata
from functools import lru_cache
from typing import Literal

_BEFORE = str.maketrans({**dict.fromkeys("‘’ʼ′´`", "'"), **dict.fromkeys("\u00ad\u200c\u200d\u2060\ufeff")})
"""Apostrophes, before NFKC makes a space and an accent of ´. Soft hyphens and joiners are removed."""

_AFTER = str.maketrans({"ı": "i", "\u0307": None})
"""Turkish has four letters i, and `casefold` keeps the dot of İ and makes i of I. NFKC has joined any other dot."""


_MOST_MARKS = 30


@lru_cache(maxsize=1024)
def fold(text: str) -> str:
    """`text` in NFKC and without case, with one apostrophe, and one letter i for the four of Turkish.

    Full-width letters are ordinary ones, and accents are part of their letters.
    """
    composed = normalized("NFKC", text.translate(_BEFORE)).casefold()
    return normalized("NFKC", composed).translate(_AFTER)


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    """`unicodedata.normalize` in linear time: it sorts the marks of a letter, by pairs. Of a longer row of marks, the
    first 30 stay, which is the limit of Unicode's stream-safe texts (UAX 15)."""
    if text.isascii():
        return text
    kept, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= _MOST_MARKS:
            kept.append(letter)
    return unicodedata.normalize(form, "".join(kept))
