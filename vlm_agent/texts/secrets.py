"""Secrets in texts: card numbers, which are masked before they are written to a file.

A card number has 13 to 19 digits (ISO/IEC 7812) that pass the Luhn check. One space or dash may lie between two digits.
Of a longer row of digits, the parts between spaces or dashes are tried: `CARD CARD` and `CARD CVC` are masked, and a
number of 20 digits without a space is not a card number.
"""

import re

MASK = "•" * 8
"""Replaces a secret, of whatever length."""

CARD_DIGITS = range(13, 20)

_GROUPED = re.compile(r"\d+(?:[\s\-‐-―−]\d+)*")
_GROUP = re.compile(r"\d+")


def mask_cards(text: str) -> str:
    """`text` with `MASK` in place of each card number."""
    return _GROUPED.sub(_without_cards, text)


def has_card(text: str) -> bool:
    return mask_cards(text) != text


def passes_luhn(digits: str) -> bool:
    """The check of ISO/IEC 7812-1: every second digit from the right is doubled, and the sum ends with 0."""
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[::2]) + sum(sum(divmod(2 * number, 10)) for number in numbers[1::2])) % 10 == 0


def _without_cards(found: re.Match[str]) -> str:
    """A row of groups of digits; the longest card number from each place is masked, from left to right."""
    row, groups = found[0], [group.span() for group in _GROUP.finditer(found[0])]
    text, written, first = "", 0, 0
    while first < len(groups):
        start = groups[first][0]
        last = next(
            (last for last in range(len(groups) - 1, first - 1, -1) if _is_card(row, start, groups[last][1])), None
        )
        if last is None:
            first += 1
            continue
        text += row[written:start] + MASK
        written, first = groups[last][1], last + 1
    return text + row[written:]


def _is_card(row: str, start: int, end: int) -> bool:
    digits = "".join(letter for letter in row[start:end] if letter.isdecimal())
    return len(digits) in CARD_DIGITS and passes_luhn(digits)
