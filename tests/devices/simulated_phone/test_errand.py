"""Errands: what is told can be done as it is told, and says which element is meant."""

import random
from collections import Counter

import pytest

from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.devices.simulated_phone.errand import LISTS_WITH, next_deed
from vlm_agent.episodes import element_at

TEXTS = ["red", "lamp", "42 Main Street", "Zoe"]


def walk(seed: int, steps: int = 6):
    """(the phone's elements, whether a field had the focus, the deed) before each step of a walk."""
    rng, phone = random.Random(seed), SimulatedPhone(seed)
    for _ in range(steps):
        elements, focused = phone.elements(), phone.focus is not None
        deed = next_deed(phone, rng, TEXTS)
        yield elements, focused, deed
        phone.perform(deed.action)


@pytest.fixture(scope="module")
def walked():
    return [told for seed in range(80) for told in walk(seed)]


def test_what_is_to_be_tapped_has_a_name_of_its_own_under_the_finger(walked):
    called = Counter()
    for elements, _, deed in walked:
        if deed.action.is_tap:
            touched = element_at(elements, deed.action.touch_yx)
            called["its name" if deed.words == touched.name else touched.type] += 1
            assert Counter(element.name for element in elements)[touched.name] == 1
    apps = {kind: count for kind, count in called.items() if kind != "its name"}
    assert called["its name"] > 100
    assert sum(apps.values()) > 20
    assert all(kind.startswith("ICON_") for kind in apps)  # an app, told by its name and tapped on its icon


def test_every_kind_of_action_is_told_in_its_own_words(walked):
    words = {
        "swipe": lambda deed: f"swipe {deed.action.direction}",
        "type": lambda deed: f"type {deed.action.text}",
        "back": lambda deed: "back",
        "home": lambda deed: "home",
        "enter": lambda deed: "enter",
    }
    kinds = Counter(deed.action.name for _, _, deed in walked)
    assert set(kinds) == {"tap", *words}
    for _, _, deed in walked:
        if not deed.action.is_tap:
            assert deed.words == words[deed.action.name](deed)


def test_nothing_is_typed_or_entered_where_no_field_has_the_focus(walked):
    assert all(focused for _, focused, deed in walked if deed.action.name in ("type", "enter"))


def test_no_name_would_look_like_two(walked):
    assert not any(LISTS_WITH in deed.words for _, _, deed in walked)


def test_a_seed_decides_a_walk():
    assert [deed for *_, deed in walk(3)] == [deed for *_, deed in walk(3)]
    assert [deed for *_, deed in walk(3)] != [deed for *_, deed in walk(4)]
