"""Steps of instructed walks: every step is possible where it is named, and its words name one element."""

import random
from collections import Counter

import pytest

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import LIST_SEPARATOR, next_step
from shipped_weights.phone_vlm_tiny.settings import InstructedWalkRecipe
from vlm_agent.episodes import element_at
from vlm_agent.simulator import SimulatedPhone

TEXTS = ["red", "lamp", "42 Main Street", "Zoe"]


def walk(seed: int, steps: int = 6):
    """(the phone's elements, whether a field had the focus, the step) before each step of a walk."""
    rng, phone = random.Random(seed), SimulatedPhone(seed)
    for _ in range(steps):
        elements, focused = phone.elements(), phone.focus is not None
        step = next_step(phone, rng, TEXTS, InstructedWalkRecipe())
        yield elements, focused, step
        phone.perform(step.action)


@pytest.fixture(scope="module")
def walked():
    return [observed for seed in range(80) for observed in walk(seed)]


def test_a_tapped_target_has_a_unique_name_under_the_finger(walked):
    called = Counter()
    for elements, _, step in walked:
        if step.action.is_tap:
            touched = element_at(elements, step.action.touch_yx)
            called["its name" if step.words == touched.name else touched.type] += 1
            assert Counter(element.name for element in elements)[touched.name] == 1
    apps = {kind: count for kind, count in called.items() if kind != "its name"}
    assert called["its name"] > 100
    assert sum(apps.values()) > 20
    assert all(kind.startswith("ICON_") for kind in apps)  # an app, named by its name and tapped on its icon


def test_every_kind_of_action_has_its_own_words(walked):
    words = {
        "swipe": lambda step: f"swipe {step.action.direction}",
        "type": lambda step: f"type {step.action.text}",
        "back": lambda step: "back",
        "home": lambda step: "home",
        "enter": lambda step: "enter",
    }
    kinds = Counter(step.action.name for _, _, step in walked)
    assert set(kinds) == {"tap", *words}
    for _, _, step in walked:
        if not step.action.is_tap:
            assert step.words == words[step.action.name](step)


def test_typing_and_enter_occur_only_when_a_field_has_the_focus(walked):
    assert all(focused for _, focused, step in walked if step.action.name in ("type", "enter"))


def test_no_name_contains_the_list_separator(walked):
    assert not any(LIST_SEPARATOR in step.words for _, _, step in walked)


def test_a_seed_determines_a_walk():
    assert [step for *_, step in walk(3)] == [step for *_, step in walk(3)]
    assert [step for *_, step in walk(3)] != [step for *_, step in walk(4)]
