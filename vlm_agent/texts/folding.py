"""One spelling for texts that are compared with lists of words: those of the purchase guard, and of secrets."""

import unicodedata
from functools import lru_cache

_BEFORE = str.maketrans({**dict.fromkeys("‘’ʼ′´`", "'"), **dict.fromkeys("\u00ad\u200c\u200d\u2060\ufeff")})
"""Apostrophes, before NFKC makes a space and an accent of ´. Soft hyphens and joiners are removed."""

_AFTER = str.maketrans({"ı": "i", "\u0307": None})
"""Turkish has four letters i, and `casefold` keeps the dot of İ and makes i of I. NFKC has joined any other dot."""


@lru_cache(maxsize=1024)
def fold(text: str) -> str:
    """`text` in NFKC and without case, with one apostrophe, and one letter i for the four of Turkish.

    Full-width letters are ordinary ones, and accents are part of their letters.
    """
    composed = unicodedata.normalize("NFKC", text.translate(_BEFORE)).casefold()
    return unicodedata.normalize("NFKC", composed).translate(_AFTER)
