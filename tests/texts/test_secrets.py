"""Card numbers in texts."""

import random

import pytest

from vlm_agent.texts.secrets import MASK, has_card, mask_cards, passes_luhn

PUBLISHED = ("4111111111111111", "5500005555555559", "378282246310005", "6011000990139424", "4222222222222")
"""Test numbers that payment services publish."""


def card(chance: random.Random, digits: int) -> str:
    number = "".join(chance.choices("0123456789", k=digits - 1))
    return next(whole for check in "0123456789" if passes_luhn(whole := number + check))


@pytest.mark.parametrize("number", PUBLISHED)
def test_published_numbers_are_masked_however_they_are_separated(number):
    for separator in (" ", "-", "\u00a0", "\u2013"):
        written = separator.join(number[start : start + 4] for start in range(0, len(number), 4))
        assert mask_cards(f"pay with {written}, please") == f"pay with {MASK}, please"


def test_any_card_number_anywhere_leaves_no_four_of_its_digits():
    chance = random.Random(0)
    for _ in range(2000):
        number = card(chance, chance.randint(13, 19))
        written = "".join(digit + chance.choice(["", "", "", " ", "-"]) for digit in number[:-1]) + number[-1]
        text = (
            f"{chance.choice(['', 'no.', '(', '号'])}{written}{chance.choice(['', ' 123', '.', ' 12/29', ' 1229 999'])}"
        )
        masked = mask_cards(text)
        assert has_card(text)
        assert number[:4] not in masked.replace(" ", "").replace("-", "") or number[:4] in "1239991229", (text, masked)


def test_two_numbers_in_a_row_are_both_masked():
    assert mask_cards(f"{PUBLISHED[0]} {PUBLISHED[1]}") == f"{MASK} {MASK}"


@pytest.mark.parametrize(
    "text", ["", "room 4111", "4111111111111112", "0049 89 636 48018", "12:30 12:45", "9" * 20, "2026-11-24", "一二三"]
)
def test_other_texts_stay(text):
    assert mask_cards(text) == text
