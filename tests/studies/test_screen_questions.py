"""The benchmark of screens' descriptions: verdicts on taps, and questions answered by rule."""

import numpy as np
import pytest

from studies.vision_tasker.questions.asked import Question, is_right, questions_on
from studies.vision_tasker.questions.reading import boxes_found, icons_read, of_truth
from studies.vision_tasker.questions.taps import verdict
from studies.vision_tasker.questions.truth import Truth, expert_taps, view_tree
from studies.vision_tasker.questions.views import Thing, View, has, in_html, in_words, lines_of
from vlm_agent.episodes import UiElement, Widget

DESCRIPTION = """0 status bar: 7:27

1 title: Network
2 switch on: Wi-Fi Connected
3 switch off: Bluetooth

4 image: Gym Madrid
5 image: Party Rome
6 image
7: Coffee
8: Lima

9: Home
10 button selected: Search
11: Me"""
HTML = """<p id=0 class="text" alt="Network">Network</p>
<img id=1 class=ICON_SWITCH alt="Wi-Fi">Wi-Fi</p>
<img id=2 class=ICON_IMAGE alt="Gym">Gym</p>
<p id=3 class="text" alt="Madrid">Madrid</p>
"""


@pytest.mark.parametrize(
    ("question", "in_description", "in_html"),
    [
        (Question("switch", ("Wi-Fi",), "on"), True, False),
        (Question("switch", ("Bluetooth",), "off"), True, False),
        (Question("switch", ("Bluetooth",), "on"), False, False),
        (Question("tab", ("Home", "Search", "Me"), "Search"), True, False),
        (Question("tab", ("Home", "Search", "Me"), "Home"), False, False),
        (Question("beside", ("Gym",), "Madrid"), True, True),
        (Question("beside", ("Coffee",), "Lima"), True, False),
        (Question("beside", ("Gym",), "Rome"), False, False),
        (Question("present", ("Coffee",), "yes"), True, False),
        (Question("present", ("Tea",), "no"), True, True),
        (Question("switches", (), "2"), True, False),
        (Question("rows", (), "3"), True, False),
    ],
)
def test_questions_are_answered_from_the_text_alone(question, in_description, in_html):
    assert is_right(question, lines_of(DESCRIPTION)) is in_description
    assert is_right(question, lines_of(HTML)) is in_html


def test_a_view_without_text_answers_nothing_but_that_a_text_is_absent():
    assert lines_of("") == []
    assert not is_right(Question("rows", (), "3"), [])
    assert is_right(Question("present", ("Tea",), "no"), [])


def screen(**changes) -> Truth:
    """Two rows with the buttons a and b; the expert taps a."""
    content = {
        "name": "0-0",
        "goal": "",
        "pixels": np.full((200, 100, 3), 255, np.uint8),
        "elements": (
            UiElement((0.1, 0.1, 0.1, 0.4), "Wi-Fi"),
            UiElement((0.5, 0.1, 0.1, 0.4), "Sound"),
            UiElement((0.1, 0.8, 0.1, 0.1), "", "ICON_SETTINGS"),
        ),
        "widgets": (Widget("switch", (0.5, 0.7, 0.1, 0.2), True),),
        "targets": (("a", (0, 10, 100, 50)), ("b", (0, 90, 100, 130))),
        "key": "a",
        "wanted_texts": ("Wi-Fi",),
        "wanted_icon": "",
        "states": {"Sound": True},
        "tabs": (("One", False), ("Two", True), ("Three", False)),
        "rows": (("Wi-Fi", "Home"), ("Sound",), ("Display",)),
    }
    return Truth(**(content | changes))


def view(*things: tuple[str, float]) -> View:
    return View("", tuple(Thing(label, (y, 0.3)) for label, y in things))


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        ([("Wi-Fi", 0.15), ("Sound", 0.55)], "named"),
        ([("WiFi Connected", 0.15)], "named"),
        ([("Wi-Fi", 0.15), ("Wi-Fi", 0.55)], "ambiguous"),
        ([("Wi-Fi Home", 0.15), ("Wi-Fi", 0.55)], "named"),
        ([("image", 0.15), ("Sound", 0.55)], "misread"),
        ([("Sound", 0.55)], "missed"),
        ([("Wi-Fi", 0.9)], "missed"),
        ([], "missed"),
    ],
)
def test_a_tap_is_named_ambiguous_misread_or_missed(things, expected):
    assert verdict(screen(), view(*things)) == expected


def test_an_icon_without_a_text_is_named_by_its_meaning_or_by_its_annotation():
    icon = screen(wanted_texts=(), wanted_icon="ICON_MAGNIFYING_GLASS")
    assert verdict(icon, view(("search", 0.15))) == "named"
    assert verdict(icon, view(("ICON_MAGNIFYING_GLASS", 0.15))) == "named"
    assert verdict(icon, view(("settings", 0.15))) == "misread"


def test_questions_come_from_the_state_of_the_phone():
    asked = {(one.kind, one.about, one.answer) for one in questions_on(screen(), ["Sound", "Trains"])}
    assert asked >= {
        ("switch", ("Sound",), "on"),
        ("tab", ("One", "Two", "Three"), "Two"),
        ("beside", ("Wi-Fi",), "Home"),
        ("present", ("Trains",), "no"),
        ("switches", (), "1"),
        ("rows", (), "3"),
    }
    assert len(asked) == 7


def test_a_perfect_reader_describes_all_that_is_drawn():
    truth = screen()
    understood = of_truth(truth)
    assert boxes_found(truth, understood)["texts"]["read"] == 2
    assert icons_read(truth, understood) == {"drawn": 1, "found_alone": 0, "right": 0}
    assert "switch on: Sound" in in_words(understood).text
    assert "ICON_SETTINGS" in in_html(truth.elements).text
    assert view_tree(truth.elements, (200, 100)).count("<node") == 3


def test_words_of_a_longer_text_are_found_and_others_are_not():
    assert has("Wi-Fi Connected", "WiFi") and has(" Calcu1ator", "Calculator")
    assert not has("Settings", "Sound") and not has("", "Sound")


def test_the_expert_s_taps_are_replayed_with_what_the_phone_knows():
    screens = expert_taps((448, 208))
    for _ in range(6):
        truth = next(screens)
        assert truth.key in {key for key, _ in truth.targets}
        assert truth.wanted_texts or truth.wanted_icon
        assert verdict(truth, in_html(truth.elements)) in ("named", "ambiguous")
