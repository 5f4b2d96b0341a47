"""Card numbers: the check of ISO/IEC 7812-1, and masking that tries every pair of groups of digits, in cubic time."""

import re

from vlm_agent.texts.secrets import MASK

_ROW = re.compile(r"\d+(?:[\s\-‐-―−]\d+)*")


def passes_luhn(digits: str) -> bool:
    """Every second digit from the right is doubled, and the sum ends with 0."""
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[::2]) + sum(sum(divmod(2 * number, 10)) for number in numbers[1::2])) % 10 == 0


def masked_slowly(text: str) -> str:
    return _ROW.sub(_without_cards, text)


def _without_cards(found: re.Match[str]) -> str:
    row, groups = found[0], [group.span() for group in re.finditer(r"\d+", found[0])]
    text, written, first = "", 0, 0
    while first < len(groups):
        start = groups[first][0]
        last = next((n for n in range(len(groups) - 1, first - 1, -1) if _is_card(row[start : groups[n][1]])), None)
        if last is None:
            first += 1
            continue
        text += row[written:start] + MASK
        written, first = groups[last][1], last + 1
    return text + row[written:]


def _is_card(text: str) -> bool:
    digits = "".join(letter for letter in text if letter.isdecimal())
    return 13 <= len(digits) <= 19 and passes_luhn(digits)
