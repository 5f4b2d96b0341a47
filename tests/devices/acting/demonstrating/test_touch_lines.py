"""Observed actions in words."""

import random

import numpy as np
import pytest
from helpers.agents.understood import as_parts
from helpers.robustness.cards import passes_luhn

from vlm_agent.devices.acting.demonstrating.lines import lines_of
from vlm_agent.devices.acting.demonstrating.observed import (
    Observed,
    ObservedAction,
    ObservedScreen,
    TypingField,
    with_read_elements,
)
from vlm_agent.episodes import Action, Episode, UiElement, element_at
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.texts.secrets import MASK


def row(number: int, text: str, kind: str = "TEXT") -> UiElement:
    return UiElement((0.1 * number, 0.1, 0.08, 0.8), text, kind)


def tap(number: int) -> Action:
    return Action.tap(0.1 * number + 0.04, 0.5)


def screen(*elements: UiElement, **more) -> ObservedScreen:
    return ObservedScreen("app/.Main", elements, **more)


MENU = screen(row(0, "Settings"), row(1, "Install"), row(2, "Install"), row(3, "", "ICON_V_DOTS"), row(4, "It's"))


def words(*actions: Action, on: ObservedScreen = MENU) -> tuple[str, ...]:
    return lines_of(Observed([ObservedAction(action, on) for action in actions], on)).lines


def test_touches_are_named_by_the_element_under_the_finger():
    assert words(tap(0), tap(2), tap(3), Action.long_press(0.44, 0.5), Action.tap(0.9, 0.25)) == (
        "tap 'Settings'",
        "tap 'Install' (2 of 2)",
        "tap the v dots icon",
        "long press 'It’s'",
        "tap the point (250, 900)",
    )


def test_a_touch_beside_a_text_is_one_on_it():
    assert words(Action.tap(0.195, 0.5), on=screen(row(1, "Wifi"))) == ("tap 'Wifi'",)
    assert words(Action.tap(0.23, 0.5), on=screen(row(1, "Wifi"))) == ("tap the point (500, 230)",)


def test_swipes_keys_and_what_has_no_line():
    up = Action.swipe((0.8, 0.5), (0.2, 0.5))
    left = Action.swipe((0.5, 0.8), (0.5, 0.2))
    assert words(
        up, up, up, left, Action.press("back"), Action.wait(), Action.open_app("Clock"), Action.complete()
    ) == ("swipe up 3 times", "swipe left", "press back", "open the app 'Clock'")


def test_typing_names_the_field_and_joins_its_pieces():
    search = screen(row(0, "Search"))
    typed = [tap(0), Action.type_text("piz"), Action.type_text("za"), Action.press("enter")]
    assert words(*typed, on=search) == ("tap 'Search'", "type 'pizza' into 'Search'", "press enter")


def test_touches_on_the_keyboard_become_the_text_that_the_field_then_has():
    def typing(text):
        return screen(row(0, text), keyboard=True, typing=TypingField("Search", text))

    keys = [Action.tap(0.8, x / 10) for x in (1, 5, 9)]
    actions = [
        ObservedAction(tap(0), screen(row(0, "Search"))),
        *(ObservedAction(key, typing("piz"[:number])) for number, key in enumerate(keys)),
        ObservedAction(Action.tap(0.85, 0.5), None),  # faster than the screen is read
        ObservedAction(Action.wait(), typing("pizza"), erases=True),
        ObservedAction(Action.press("back"), typing("pizz")),
    ]
    found = lines_of(Observed(actions, screen()))
    assert found.lines == ("tap 'Search'", "type 'pizz' into 'Search'", "press back")
    assert found.unread == 0


HELLO = Action.swipe((0.72, 0.6), (0.75, 0.3))
BACK, HOME = Action.swipe((0.8, 0.01), (0.8, 0.5)), Action.swipe((0.99, 0.5), (0.5, 0.5))


def test_a_glide_over_the_keyboard_types_and_a_gesture_from_the_edge_does_not():
    def typing(text):
        return screen(row(0, text), keyboard=True, typing=TypingField("Search", text))

    actions = [
        ObservedAction(tap(0), screen(row(0, "Search"))),
        ObservedAction(HELLO, typing("")),
        ObservedAction(HELLO, typing("hello")),
        ObservedAction(BACK, typing("hello you")),
        ObservedAction(HOME, typing("hello you")),
    ]
    found = lines_of(Observed(actions, screen()))
    assert found.lines == ("tap 'Search'", "type 'hello you' into 'Search'", "swipe right", "swipe up")


def test_held_keys_of_a_password_are_typing():
    form = screen(row(1, "Password"), row(5, "Sign in"), keyboard=True)
    keys = [Action.tap(0.8, 0.2), Action.long_press(0.72, 0.05), Action.tap(0.88, 0.45)]
    found = words(tap(1), *keys, tap(5), on=form)
    assert found == ("tap 'Password'", f"type '{MASK}' into 'Password'", "tap 'Sign in'")


def test_a_text_that_was_never_read_is_not_invented():
    actions = [ObservedAction(tap(0), screen(row(0, "Search")))]
    actions += [ObservedAction(Action.tap(0.8, 0.5), screen(row(0, "Search"), keyboard=True))]
    assert lines_of(Observed(actions, screen())).lines == ("tap 'Search'", "type a text into 'Search'")


def test_touches_whose_screen_was_not_read_have_no_point_and_are_counted():
    found = lines_of(Observed([ObservedAction(tap(0), None), ObservedAction(tap(1), MENU)]))
    assert found.lines == ("tap an unknown point", "tap 'Install' (1 of 2)")
    assert found.unread == 1


def test_touches_on_a_screen_whose_elements_the_phone_did_not_list_have_no_point():
    found = lines_of(Observed([ObservedAction(tap(number), ObservedScreen("app/.Pin", None)) for number in (1, 5)]))
    assert found.lines == ("tap an unknown point",)
    assert found.unread == 2


FAST = [ObservedAction(Action.tap(y, x), None) for y, x in [(0.8, 0.2), (0.72, 0.25), (0.88, 0.45), (0.5, 0.35)]]
"""Keys that are tapped faster than the screen is read."""


@pytest.mark.parametrize("shown", [None, "hi7-go"], ids=["password", "plain"])
def test_a_password_typed_faster_than_the_screen_is_read_is_masked(shown):
    form = screen(row(1, "Password"), row(5, "Sign in"))
    typed = screen(row(1, "Password"), row(5, "Sign in"), keyboard=True, typing=TypingField("Password", shown))
    found = lines_of(Observed([ObservedAction(tap(1), form), *FAST, ObservedAction(tap(5), typed)], typed))
    assert found.lines == ("tap 'Password'", f"type '{MASK}' into 'Password'", "tap 'Sign in'")
    assert (found.masked, found.unread) == (1, 0)


def test_fast_touches_after_a_pin_page_are_masked():
    page = screen(row(1, "Enter your PIN"))
    found = lines_of(Observed([ObservedAction(tap(3), page), *FAST], screen(row(0, "Welcome"))))
    assert found.lines == ("tap the point (500, 340)", f"type '{MASK}'")


@pytest.mark.parametrize("touches", [1, 4])
def test_a_pin_on_a_page_that_was_never_read_leaves_neither_its_points_nor_its_length(touches):
    before, after = screen(row(0, "Log in")), ObservedAction(tap(0), screen(row(0, "Welcome")))
    found = lines_of(Observed([ObservedAction(tap(0), before), *FAST[:touches], after]))
    assert found.lines == ("tap 'Log in'", "tap an unknown point", "tap 'Welcome'")
    assert found.unread == touches


@pytest.mark.parametrize("name", ["Password", ""])
def test_keys_that_may_have_moved_to_a_password_are_masked(name):
    """The keyboard's key for the next field was not read; the phone shows the password as plain text."""
    form = (row(0, "Email"), row(1, "Password"))
    email = screen(*form, keyboard=True, typing=TypingField("Email", ""))
    later = screen(*form, keyboard=True, typing=TypingField(name, "hi7"))
    actions = [ObservedAction(tap(0), screen(*form)), ObservedAction(Action.tap(0.8, 0.5), email), *FAST[:3]]
    found = lines_of(Observed([*actions, ObservedAction(Action.press("back"), later)], later))
    assert found.lines == ("tap 'Email'", f"type '{MASK}' into 'Email'", "press back")
    assert found.secrets.mask("hi7-go hi7") == f"{MASK}-go {MASK}"


def test_after_a_touch_that_was_not_read_the_field_is_unknown():
    form = screen(row(0, "Email"), row(1, "Password"))
    later = screen(row(0, "Email"), row(1, "Password"), keyboard=True, typing=TypingField("", "hi7"))
    keys = [ObservedAction(Action.tap(0.8, 0.5), later)] * 2
    found = lines_of(Observed([ObservedAction(tap(0), form), ObservedAction(tap(1), None), *keys], later))
    assert found.lines == ("tap 'Email'", "tap an unknown point", f"type '{MASK}'")


def test_a_search_typed_faster_than_the_screen_is_read_keeps_its_text():
    form = (row(0, "Search"), row(2, "Password manager"))
    empty, full = (screen(*form, keyboard=True, typing=TypingField("Search", text)) for text in ("", "pizza"))
    actions = [ObservedAction(tap(0), screen(*form)), ObservedAction(Action.tap(0.8, 0.5), empty), *FAST[:3]]
    found = lines_of(Observed([*actions, ObservedAction(Action.press("back"), full)], full))
    assert found.lines == ("tap 'Search'", "type 'pizza' into 'Search'", "press back")


@pytest.mark.parametrize("name", ["Password", "Passwort", "密码", "パスワード", "Mot de passe", "Card number", "CVC"])
def test_secrets_are_masked_typed_or_by_keys(name):
    form = screen(row(0, "Email"), row(1, name))
    found = lines_of(
        Observed(
            [ObservedAction(one, form) for one in (tap(0), Action.type_text("ann"), tap(1), Action.type_text("hi7"))]
        )
    )
    assert found.lines == ("tap 'Email'", "type 'ann' into 'Email'", f"tap '{name}'", f"type '{MASK}' into '{name}'")
    assert found.masked == 1
    hidden = screen(row(1, "hi7"), keyboard=True, typing=TypingField(name, None))
    keys = [ObservedAction(tap(1), form), ObservedAction(Action.tap(0.8, 0.5), hidden), ObservedAction(tap(1), hidden)]
    assert all("hi7" not in line for line in lines_of(Observed(keys[:2], hidden)).lines)


def test_no_digit_of_a_typed_card_number_is_left_in_any_line():
    chance = random.Random(1)
    for _ in range(300):
        body = "".join(chance.choices("0123456789", k=chance.randint(12, 18)))
        number = next(body + check for check in "0123456789" if passes_luhn(body + check))
        separator, cut = chance.choice(["", " ", "-"]), chance.randint(1, len(number) - 1)
        written = separator.join(number)
        pieces = [Action.type_text(written[:cut]), Action.type_text(written[cut:])]
        later = screen(row(0, written), row(1, f"Pay with {written}"))
        actions = [ObservedAction(one, screen(row(0, "Note"))) for one in (tap(0), *pieces)]
        found = lines_of(Observed([*actions, ObservedAction(tap(0), later), ObservedAction(tap(1), later)]))
        assert found.masked == 1
        assert not any(letter.isdigit() for line in found.lines for letter in line), found.lines


def test_expert_actions_on_simulated_phones_are_named_by_what_they_touch():
    taps = named = 0
    for seed in range(8):
        task = sample_task("general", "test", seed)
        phone = SimulatedPhone(task.seed)
        task.set_up(phone)
        episode = Episode("1", "general", task.goal, tuple(task.solve(phone, pixels=False)))
        steps = [ObservedAction(one.action, ObservedScreen(one.activity, one.elements)) for one in episode.steps]
        found = lines_of(Observed(steps)).lines
        named += sum(line.startswith("tap ") and "point" not in line for line in found)
        taps += sum(step.action.is_tap for step in episode.steps)
        for step in episode.steps:
            if step.action.is_tap and (touched := element_at(step.elements, step.action.touch_yx)).text:
                assert any(touched.text[:30].replace("'", "’") in line for line in found)
    assert named == taps >= 20


def test_elements_read_from_the_pixels_name_touches_and_the_phones_own_still_name_passwords():
    blank = np.zeros((20, 10, 3), np.uint8)
    shown = ObservedScreen("app/.Main", (row(0, "Password"),), pixels=blank)
    typing = [ObservedAction(one, shown) for one in (tap(0), Action.type_text("hi7"))]
    found = lines_of(with_read_elements(Observed(typing, shown), lambda _: as_parts((row(0, "Kode"),))))
    assert found.lines == ("tap 'Kode'", f"type '{MASK}' into 'Kode'")
    assert lines_of(Observed(typing, shown)).lines[0] == "tap 'Password'"


def pad(**more) -> ObservedScreen:
    keys = tuple(UiElement((0.3 + 0.1 * (n // 3), 0.1 + 0.3 * (n % 3), 0.08, 0.2), str(n + 1)) for n in range(9))
    return ObservedScreen("bank/.Login", (UiElement((0.1, 0.1, 0.05, 0.5), "Enter PIN"), *keys, row(7, "OK")), **more)


def test_the_digits_of_a_pin_pad_are_typed_and_masked():
    first, held, last = (0.34, 0.2), (0.34, 0.5), (0.44, 0.8)
    actions = [ObservedAction(one, pad()) for one in (Action.tap(*first), Action.long_press(*held), Action.tap(*last))]
    unread = ObservedAction(Action.tap(0.44, 0.2), None)  # a point of the pad is a digit, too
    found = lines_of(Observed([*actions, unread, ObservedAction(tap(7), pad())], pad()))
    assert found.lines == (f"type '{MASK}'", "tap 'OK'")
    assert found.masked == 1
    calculator = screen(row(0, "1"), row(1, "2"))
    assert words(tap(0), tap(1), on=calculator) == ("tap '1'", "tap '2'")


def test_keys_of_a_password_on_a_wide_screen_are_no_points():
    form = screen(row(0, "Password"), keyboard=True, typing=TypingField("Password", None))
    actions = [ObservedAction(tap(0), form), *(ObservedAction(Action.tap(0.5, x / 9), form) for x in (2, 4, 7))]
    assert lines_of(Observed(actions, form)).lines == ("tap 'Password'", f"type '{MASK}' into 'Password'")


def test_the_secrets_of_a_session_are_masked_in_its_goal():
    form = screen(row(0, "Password"))
    found = lines_of(Observed([ObservedAction(one, form) for one in (tap(0), Action.type_text("hi7-go"))], form))
    assert found.secrets.mask("log in with hi7-go") == f"log in with {MASK}"


def test_the_name_that_the_phone_reports_for_a_field_makes_its_content_a_secret():
    """No touch before: the page opens with the cursor in the field."""
    page = screen(row(0, "Sign in"), row(1, "h"), keyboard=True, typing=TypingField("Password", "h"))
    later = screen(row(0, "Sign in"), row(1, "hunter2"), typing=TypingField("Password", "hunter2"))
    keys = [ObservedAction(Action.tap(0.8, 0.5), page)] * 7
    found = lines_of(Observed([*keys, ObservedAction(tap(1), later), ObservedAction(tap(0), later)], later))
    assert found.lines == (f"type '{MASK}' into 'Password'", "tap 'Password'", "tap 'Sign in'")


def test_a_field_that_shows_a_short_secret_is_named_by_its_hint():
    empty = screen(row(0, "12"), row(1, "12 items"))
    typing = screen(row(0, "12"), row(1, "12 items"), keyboard=True, typing=TypingField("CVC", "12"))
    full = screen(row(0, "123"), row(1, "12 items"), keyboard=True, typing=TypingField("CVC", "123"))
    actions = [
        ObservedAction(tap(0), empty),
        ObservedAction(Action.tap(0.8, 0.5), typing),
        ObservedAction(tap(1), full),
    ]
    found = lines_of(Observed(actions, full))
    assert found.lines == ("tap 'CVC'", f"type '{MASK}' into 'CVC'", "tap '12 items'")


@pytest.mark.parametrize("name", ["{} ABC", "{}ABC", "digit {}", "{}, key"])
def test_the_keys_of_a_pin_pad_may_have_longer_names(name):
    def pad(*more):
        keys = (UiElement((0.3, 0.2 * n, 0.08, 0.15), name.format(n)) for n in range(4))
        return ObservedScreen("bank/.Login", (row(0, "Enter PIN"), *keys, *more, row(7, "Forgot the PIN of 2 cards?")))

    actions = [ObservedAction(Action.tap(0.34, 0.2 * n + 0.05), pad()) for n in (1, 3, 0, 2)]
    found = lines_of(Observed([*actions, ObservedAction(tap(7), pad())], pad()))
    assert found.lines == (f"type '{MASK}'", "tap 'Forgot the PIN of 2 cards?'")


@pytest.mark.parametrize("hint", ["Password", ""])
def test_a_password_that_is_shown_later_is_masked(hint):
    """After "show password" the phone reports the content of the field as its text."""
    form = (row(0, "Name"), row(2, "Show"), row(3, "Sign in"))
    hidden = screen(row(1, "password"), *form, keyboard=True, typing=TypingField("password", None))
    shown = screen(row(1, "hunter2"), *form, keyboard=True, typing=TypingField(hint, "hunter2"))
    more = screen(row(1, "hunter2x"), *form, keyboard=True, typing=TypingField(hint, "hunter2x"))
    actions = [
        ObservedAction(tap(1), screen(row(1, "password"), *form)),
        *[ObservedAction(Action.tap(0.8, 0.5), hidden)] * 7,
        ObservedAction(tap(2), hidden),
        ObservedAction(tap(1), shown),
        ObservedAction(Action.tap(0.8, 0.5), shown),
        ObservedAction(tap(3), more),
    ]
    found = lines_of(Observed(actions, more))
    assert not any("hunter" in line for line in found.lines), found.lines
    assert (found.lines[0], found.lines[2], found.lines[-1]) == ("tap 'password'", "tap 'Show'", "tap 'Sign in'")
    assert found.masked == 2
    assert found.secrets.mask("sign in with hunter2x") == f"sign in with {MASK}"


def test_another_page_of_the_activity_may_have_a_row_where_the_password_was():
    form = screen(row(0, "Name"), row(1, "Password"), row(3, "Sign in"))
    inbox = screen(row(0, "Inbox"), row(1, "Meeting on Friday"), row(2, "Invoice"))
    typed = [
        ObservedAction(tap(1), form),
        ObservedAction(Action.type_text("hunter2"), form),
        ObservedAction(tap(3), form),
    ]
    found = lines_of(Observed([*typed, ObservedAction(tap(1), inbox), ObservedAction(tap(2), inbox)], inbox))
    assert found.lines[-2:] == ("tap 'Meeting on Friday'", "tap 'Invoice'")


def test_the_name_that_is_read_for_a_password_field_is_not_its_content():
    """The phone calls the same place by another name."""
    blank = np.zeros((20, 10, 3), np.uint8)
    shown = ObservedScreen("app/.Main", (row(0, "Password"), row(1, "OK")), pixels=blank)
    actions = [ObservedAction(one, shown) for one in (tap(0), Action.type_text("hi7-go"), tap(1), tap(0))]
    found = lines_of(
        with_read_elements(Observed(actions, shown), lambda _: as_parts((row(0, "Kennung"), row(1, "OK"))))
    )
    assert found.lines == ("tap 'Kennung'", f"type '{MASK}' into 'Kennung'", "tap 'OK'", "tap 'Kennung'")
