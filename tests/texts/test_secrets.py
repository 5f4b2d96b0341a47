"""Card numbers in texts."""

import random
import unicodedata

import pytest
from helpers.robustness.cards import masked_slowly, passes_luhn
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.episodes import Action, UiElement
from vlm_agent.texts.secrets import MASK, Focus, Secrets, has_card, mask_cards, names_secret

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


@given(st.lists(st.sampled_from(["1", "0", "4", "٤", " ", "-", "\u2013", "\n", "x", "4111", *PUBLISHED]), max_size=24))
def test_masking_is_what_trying_every_pair_of_groups_gives(parts):
    text = "".join(parts)
    assert mask_cards(text) == masked_slowly(text)


@given(st.lists(st.text("0123456789", min_size=1, max_size=7), max_size=14), st.sampled_from(" -"))
def test_groups_of_any_length_are_masked_alike(groups, separator):
    text = separator.join(groups)
    assert mask_cards(text) == masked_slowly(text)


def test_two_numbers_in_a_row_are_both_masked():
    assert mask_cards(f"{PUBLISHED[0]} {PUBLISHED[1]}") == f"{MASK} {MASK}"


@pytest.mark.parametrize(
    "text", ["", "room 4111", "4111111111111112", "0049 89 636 48018", "12:30 12:45", "9" * 20, "2026-11-24", "一二三"]
)
def test_other_texts_stay(text):
    assert mask_cards(text) == text


@pytest.mark.parametrize(
    "name",
    [
        *("Password", "Enter your PIN", "CVC / CVV", "Card number", "Passwort eingeben", "Contraseña", "Mot de passe"),
        *(
            "Numero di carta",
            "Senha",
            "Wachtwoord",
            "Hasło",
            "Пароль",
            "Şifre",
            "请输入密码",
            "银行卡号",
            "暗証番号",
            "비밀번호를 입력",
        ),
        *("••••", "***", "● ● ●"),
    ],
)
def test_names_of_fields_for_secrets(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            unicodedata.normalize("NFD", name)
            for name in ("Contraseña", "Código de seguridad", "비밀번호", "パスワード")
        ),
        *("ＰＩＮ", "ﾊﾟｽﾜｰﾄﾞ", "ŞİFRE", "KART NUMARASI", "Pass\u00adwort", "ПАРОЛЬ"),
    ],
)
def test_names_of_fields_for_secrets_in_any_spelling_of_unicode(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("Enterpassword", "Enteryour password", "Enteryourpassword", "Confirmnewpassword", "EnterPIN", "Cardnumber"),
        *("Entercardnumber", "Securitycode", "Passworteingeben", "Motdepasse", "카드 번호"),
    ],
)
def test_names_of_fields_for_secrets_without_the_spaces_that_a_text_reader_drops(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "Email", "Spinach", "Pinboard", "Passwordless", "Search", "•", "Opinion", "商品"),
        *("Postcard numbering", "Entername", "Newpost", "Pinto"),
    ],
)
def test_names_of_other_fields(name):
    assert not names_secret(name)


EMAIL, PASSWORD = UiElement((0.1, 0.1, 0.1, 0.8), "Email"), UiElement((0.3, 0.1, 0.1, 0.8), "Password")
FORM = (EMAIL, PASSWORD)


def is_secret(focus: Focus, activity="shop/.Form", elements=FORM) -> bool:
    return focus.is_secret("some text", activity, elements)


def test_the_field_is_the_element_of_the_last_touch_where_it_still_is():
    email = Focus().after(Action.tap(0.15, 0.5), "shop/.Form", FORM)
    assert not is_secret(email)
    assert is_secret(email.after(Action.tap(0.35, 0.5), "shop/.Form", FORM))
    assert is_secret(email, elements=(UiElement(EMAIL.box, "Welcome back"), PASSWORD))  # another page
    assert not is_secret(email.after(Action.swipe((0.8, 0.5), (0.2, 0.5)), "shop/.Form", FORM))


def test_a_content_of_dots_of_any_kind_is_a_secret_and_one_dot_is_not():
    assert names_secret("••••") and names_secret("* * *") and names_secret("•●∙·*＊⚫")
    assert names_secret("••") and not names_secret("•") and not names_secret("••a") and not names_secret("  ")


def test_after_enter_and_in_another_activity_the_field_is_unknown():
    email = Focus().after(Action.tap(0.15, 0.5), "shop/.Form", FORM)
    assert is_secret(email.after(Action.press("enter"), "shop/.Form", FORM))
    assert is_secret(email, "shop/.Other")
    assert not is_secret(email, "shop/.Other", (EMAIL,))
    assert is_secret(email, "settings/.ConfirmLockPassword", ())


def test_a_key_of_the_screens_keyboard_is_not_the_field():
    keys = (*FORM, UiElement((0.8, 0.1, 0.05, 0.1), "q"))
    password = Focus().after(Action.tap(0.35, 0.5), "shop/.Form", keys)
    assert is_secret(password.after(Action.tap(0.82, 0.15), "shop/.Form", keys), elements=keys)


def test_short_secrets_are_masked_as_whole_words_and_pieces_are_joined():
    secrets = Secrets()
    secrets.add("742", continues=False)
    assert secrets.mask("CVC 742, 17423") == f"CVC {MASK}, 17423"
    secrets.add("ab", continues=False)
    secrets.add("cd", continues=True)
    assert secrets.mask("xabcdx") == f"x{MASK}x"


@pytest.mark.parametrize(
    ("y", "x", "is_near"), [(0.5, 0.15, True), (0.5, 0.65, True), (0.4, 0.4, True), (0.5, 0.8, False)]
)
def test_a_touch_beside_a_label_is_in_its_field(y, x, is_near):
    """The label is 0.4 wide, so that a touch is left of it, right of it, above it or far from it."""
    label, password = UiElement((0.45, 0.2, 0.1, 0.4), "Email"), UiElement((0.8, 0.2, 0.1, 0.4), "Password")
    field = Focus().after(Action.tap(y, x), "shop/.Form", (label, password))
    assert is_secret(field, elements=(label, password)) != is_near
