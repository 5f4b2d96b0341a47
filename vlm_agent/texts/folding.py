"""Lists of words that are looked for in texts of screens, and one spelling for these comparisons.

The lists are those of the purchase guard, and of secrets: YAML files beside their modules.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

import yaml

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


DISTINCT = 10
"""From this length on, in letters, an entry of several words is found anywhere in a longer word."""


def read_word_lists(path: Path) -> dict[str, tuple[str, ...]]:
    """Each list of a file of the package, which has it by language."""
    lists = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: tuple(chain.from_iterable(languages.values())) for name, languages in lists.items()}


class WordList:
    """`words` are found as whole words, in any spelling of `fold`. `parts` are found anywhere in a text: words of
    languages that need no spaces.

    Text readers (OCR) drop spaces, so an entry of several words is also found without some of them ("place yourorder"),
    and without any at the beginning of a longer word ("paynowwithcard"). `token`: what a word of a text is.
    """

    def __init__(self, words: Sequence[str], parts: Sequence[str], token: re.Pattern[str]) -> None:
        self._token = token
        self._parts = {_without_spaces(part): part for part in parts}
        entries = {word: self._tokens(word) for word in words}
        self._words = {"".join(tokens): word for word, tokens in reversed(entries.items())}
        joined = [re.escape("".join(tokens)) for tokens in entries.values() if len(tokens) > 1]
        patterns = [f"(?<= ){' ?'.join(map(re.escape, tokens))}(?= )" for tokens in entries.values()]
        patterns += [word if len(word) >= DISTINCT else f"(?<= ){word}" for word in joined]
        self._pattern = re.compile("|".join(patterns))

    def find(self, text: str) -> str | None:
        """The first word of the list in the text, or else a part; None if it has none."""
        found = self._pattern.search(" ".join(("", *self._tokens(text), "")))
        if found is not None:
            return self._words[found[0].replace(" ", "")]
        joined = _without_spaces(text)
        return next((part for folded, part in self._parts.items() if folded in joined), None)

    def _tokens(self, text: str) -> list[str]:
        return self._token.findall(fold(text))


def _without_spaces(text: str) -> str:
    return "".join(fold(text).split())
