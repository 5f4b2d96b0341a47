"""The language of D-PoT: numbers of elements, places where an element is the smallest, and answers of any shape."""

import json
import random
import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.action_languages.language import SWIPES
from vlm_agent.episodes import Action, Screen, UiElement
from vlm_agent.geometry import box_at, nearest_box, place_of_box
from vlm_agent.sentences.html import screen_html

LANGUAGE, BY_NAME = ElementIndexLanguage(), ElementIndexLanguage(names=True)
ROW, SWITCH, BELOW = (0.2, 0.0, 0.1, 1.0), (0.21, 0.45, 0.08, 0.1), (0.6, 0.1, 0.1, 0.3)


def screen(*boxes: tuple[float, float, float, float]) -> Screen:
    return Screen(None, tuple(UiElement(box, str(number)) for number, box in enumerate(boxes)))


SCREEN = screen(ROW, SWITCH, BELOW)
CLICK = '{"action_type": "click", "idx": 1}'
ACTIONS = [
    (Action.tap(0.25, 0.5), CLICK),
    (Action.tap(0.25, 0.1), '{"action_type": "click", "idx": 0}'),
    (Action.tap(0.9, 0.2), '{"action_type": "click", "idx": 2}'),
    (Action.swipe((0.7, 0.4), (0.3, 0.5)), '{"action_type": "scroll", "direction": "up"}'),
    (Action.swipe((0.5, 0.1), (0.4, 0.9)), '{"action_type": "scroll", "direction": "right"}'),
    (Action.type_text('a "b" é'), '{"action_type": "type", "text": "a \\"b\\" é"}'),
    (Action.press("home"), '{"action_type": "navigate_home"}'),
    (Action.press("back"), '{"action_type": "navigate_back"}'),
    (Action.press("enter"), '{"action_type": "press_enter"}'),
    (Action.complete(), '{"action_type": "status_complete"}'),
    (Action.impossible(), '{"action_type": "status_impossible"}'),
    (Action.long_press(0.25, 0.5), '{"action_type": "long_press", "idx": 1}'),
    (Action.open_app("Maps"), '{"action_type": "open_app", "text": "Maps"}'),
    (Action.answer("7"), '{"action_type": "answer", "text": "7"}'),
    (Action.recents(), '{"action_type": "navigate_recents"}'),
    (Action.wait(), '{"action_type": "wait"}'),
]


@pytest.mark.parametrize(("action", "text"), ACTIONS, ids=[text for _, text in ACTIONS])
def test_an_action_is_one_json_object_as_in_table_2(action, text):
    assert LANGUAGE.encode(action, SCREEN) == text
    decoded = LANGUAGE.decode(text, SCREEN)
    assert (decoded.kind, decoded.name, decoded.text) == (action.kind, action.name, action.text)
    assert LANGUAGE.encode(decoded, SCREEN) == text
    assert LANGUAGE.problem(text, SCREEN) is None


def test_a_scroll_is_a_fixed_swipe_in_the_direction_of_the_finger():
    for direction, (touch, lift) in SWIPES.items():
        decoded = LANGUAGE.decode(f'{{"action_type": "scroll", "direction": "{direction}"}}', SCREEN)
        assert decoded == Action.swipe(touch, lift)
        assert decoded.direction == direction
        assert set(touch + lift) == {0.5, 0.2, 0.8}


def test_a_row_is_tapped_beside_the_switch_that_covers_its_centre():
    assert box_at((ROW, SWITCH), (0.25, 0.5)) == 1
    action = LANGUAGE.decode('{"action_type": "click", "idx": 0}', SCREEN)
    assert box_at((ROW, SWITCH), action.touch_yx) == 0
    assert LANGUAGE.predicted_box('{"action_type": "click", "idx": 0}', SCREEN) == ROW


def test_an_element_without_a_place_of_its_own_is_tapped_in_its_centre():
    covered = screen((0.2, 0.2, 0.2, 0.4), (0.2, 0.2, 0.2, 0.2), (0.2, 0.4, 0.2, 0.2))
    assert LANGUAGE.decode('{"action_type": "click", "idx": 0}', covered).touch_yx == pytest.approx((0.3, 0.4))
    twins = screen(ROW, ROW)
    assert LANGUAGE.decode('{"action_type": "click", "idx": 1}', twins) is not None


def test_a_tap_on_no_element_is_that_on_the_nearest_one():
    assert LANGUAGE.encode(Action.tap(0.32, 0.5), SCREEN) == '{"action_type": "click", "idx": 0}'
    assert LANGUAGE.encode(Action.tap(1.0, 1.0), SCREEN) == '{"action_type": "click", "idx": 2}'


def test_an_element_beside_the_screen_cannot_be_tapped():
    beside = screen((1.1, 0.0, 0.1, 0.1), (0.95, 0.9, 0.2, 0.2))
    assert LANGUAGE.decode('{"action_type": "click", "idx": 0}', beside) is None
    assert "element 0 is not on the screen" in LANGUAGE.problem('{"action_type": "click", "idx": 0}', beside)
    assert LANGUAGE.decode('{"action_type": "click", "idx": 1}', beside).touch_yx == pytest.approx((0.975, 0.95))
    assert LANGUAGE.encode(Action.tap(1.0, 0.0), beside) == '{"action_type": "click", "idx": 1}'


def test_a_screen_without_elements_is_touched_by_points():
    text = '{"action_type": "click_at", "point": [0.498, 0.607]}'
    for empty in (None, Screen(None), Screen(None, ())):
        assert LANGUAGE.encode(Action.tap(0.4984, 0.607), empty) == text
        assert LANGUAGE.decode(text, empty) == Action.tap(0.498, 0.607)
        assert LANGUAGE.decode(CLICK, empty) is None
        problem = LANGUAGE.problem(CLICK, empty)
        assert problem.startswith("the screen has no element to choose; touch a point")
        assert LANGUAGE.decode(problem, empty) == Action.tap(0.25, 0.5)  # it ends with an example
    assert LANGUAGE.decode(text, SCREEN) is None
    assert LANGUAGE.decode('{"action_type": "click_at", "point": [1.5, 0.5]}') is None


GRID = st.integers(-2, 12).map(lambda number: number / 10)
SIZE = st.integers(0, 8).map(lambda number: number / 10)
BOXES = st.lists(st.tuples(GRID, GRID, SIZE, SIZE), min_size=1, max_size=6)
PLACES = st.tuples(st.floats(0, 1), st.floats(0, 1)) | st.tuples(
    *[st.integers(0, 10).map(lambda number: number / 10)] * 2
)


@given(BOXES, PLACES)
def test_what_is_written_is_tapped_where_it_is_the_smallest(boxes, place):
    shown, action = screen(*boxes), Action.tap(*place)
    text = LANGUAGE.encode(action, shown)
    decoded = LANGUAGE.decode(text, shown)
    number = nearest_box(boxes, place)
    if number is None:  # every element lies beside the screen
        assert "click_at" in text
        assert decoded.touch_yx == pytest.approx(place, abs=0.0005)
        return
    assert json.loads(text) == {"action_type": "click", "idx": number}
    assert box_at(boxes, decoded.touch_yx) == number
    under = box_at(boxes, place)
    assert under in (None, number)


NAMES = st.sampled_from(["Wi-Fi", "wi-fi", "7", "²", "", 'a "b"', "x\ny", "x" * 81, "12 Main St"]) | st.text(max_size=3)


@given(st.lists(st.tuples(GRID, GRID, SIZE, SIZE, NAMES), min_size=1, max_size=6), PLACES)
def test_an_element_that_is_called_by_its_name_is_the_one_of_the_number(rows, place):
    shown = Screen(None, tuple(UiElement(row[:4], row[4]) for row in rows))
    by_number, by_name = (language.encode(Action.tap(*place), shown) for language in (LANGUAGE, BY_NAME))
    assert BY_NAME.decode(by_name, shown) == BY_NAME.decode(by_number, shown) == LANGUAGE.decode(by_number, shown)
    assert BY_NAME.predicted_box(by_name, shown) == LANGUAGE.predicted_box(by_number, shown)
    if isinstance(called := json.loads(by_name).get("idx"), str):
        named = [number for number, row in enumerate(rows) if " ".join(row[4].split()).casefold() == called.casefold()]
        name, _, place = called.rpartition(" (")
        same = [number for number, row in enumerate(rows) if " ".join(row[4].split()).casefold() == name.casefold()]
        assert (named or same[int(place[:-1]) - 1 :][:1]) == [json.loads(by_number)["idx"]]
        for end in range(len(by_name) + 1):
            assert BY_NAME.ending(by_name[:end]) is not None
        assert BY_NAME.ending(by_name) == ""


def test_a_name_is_written_with_an_ordinal_where_several_elements_have_it():
    texts = ["Wi-Fi", "Install", "install", "7", "12 Main St", "x" * 81]
    rows = [UiElement((n / 10, 0.0, 0.1, 1.0), text) for n, text in enumerate(texts)]
    shown = Screen(None, (*rows, UiElement((0.9, 0.0, 0.1, 1.0), "", "ICON_HOME")))
    taps = (Action.tap((number + 0.5) / 10, 0.5) for number in (*range(6), 9))
    written = [json.loads(BY_NAME.encode(tap, shown))["idx"] for tap in taps]
    assert written == ["Wi-Fi", "Install (1)", "install (2)", "7 (1)", "12 Main St", 5, "ICON_HOME"]
    for name in ("Install (0)", "Install (3)", "Install (1) (2)", "Install (١)"):
        assert f'no element is called "{name}"' in BY_NAME.problem(_click(name), shown)
    literal = Screen(None, (*shown.elements, UiElement((0.7, 0.0, 0.1, 1.0), "INSTALL (2)")))
    written = [json.loads(BY_NAME.encode(Action.tap(place, 0.5), literal))["idx"] for place in (0.25, 0.75)]
    assert written == [2, "INSTALL (2)"]
    assert 'several elements are called "INSTALL"; write the id' in BY_NAME.problem(_click("INSTALL"), shown)
    assert 'no element is called "Bluetooth"' in BY_NAME.problem(_click("Bluetooth"), shown)
    assert BY_NAME.decode(_click("7"), shown) is None  # a number, which the screen does not have
    assert LANGUAGE.decode(_click("Wi-Fi"), shown) is None
    assert LANGUAGE.ending('{"action_type": "click", "idx": "W') is None


def test_a_name_is_one_that_the_prompt_shows():
    kinds = [("", "TEXT"), (" ", "TEXT"), ("", "ICON_A B"), ('a <b> "c"', "TEXT")]
    shown = Screen(None, tuple(UiElement((n / 10, 0.0, 0.1, 1.0), *kind) for n, kind in enumerate(kinds)))
    written = [json.loads(BY_NAME.encode(Action.tap((n + 0.5) / 10, 0.5), shown))["idx"] for n in range(4)]
    assert written == [0, 1, 2, 'a <b> "c"']
    assert BY_NAME.decode(_click("text"), shown) is None and BY_NAME.decode(_click(""), shown) is None
    unnamed = Screen(None, shown.elements[:1])
    assert [BY_NAME.decode(_click(blank), unnamed) for blank in (" ", "&nbsp;")] == [None, None]
    BY_NAME.problem('{"action_type": "click", "idx": "\\ud800"}', shown).encode()
    copied = re.search('alt="(a.*?)"', screen_html(shown))[1]
    assert BY_NAME.predicted_box(_click(copied), shown) == shown.elements[3].box


def test_the_longest_name_fits_the_limit_even_when_spelt_in_bytes():
    assert BY_NAME.encode(Action.tap(0.5, 0.5), Screen(None, (UiElement((0.0, 0.0, 1.0, 1.0), '"' * 41),))) != (
        BY_NAME.encode(Action.tap(0.5, 0.5), Screen(None, (UiElement((0.0, 0.0, 1.0, 1.0), '"' * 40),)))
    )
    for text in ("x" * 80, "漢" * 26):
        written = BY_NAME.encode(Action.tap(0.5, 0.5), Screen(None, (UiElement((0.0, 0.0, 1.0, 1.0), text),)))
        assert text in written and len(written.encode()) < BY_NAME.max_tokens


def _click(name: str) -> str:
    return json.dumps({"action_type": "click", "idx": name})


@given(BOXES)
def test_an_element_is_tapped_where_it_is_the_smallest_wherever_there_is_such_a_place(boxes):
    fine = np.linspace(0, 1, 41)
    smallest = {box_at(boxes, (y, x)) for y in fine for x in fine}
    for number in range(len(boxes)):
        place = place_of_box(boxes, number)
        if number in smallest:
            assert box_at(boxes, place) == number
        elif place is not None:
            assert boxes[number][0] - 1e-9 <= place[0] <= boxes[number][0] + boxes[number][2] + 1e-9
            assert all(0 <= value <= 1 for value in place)


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{CLICK}\n```",
        f"I think\n{CLICK}.",
        f"Action: {CLICK}",
        f"{{thinking}} {CLICK} {CLICK}",
        "{'action_type': 'click', 'idx': 1}",
        "{'action_type': 'click', 'idx': '1'}",
        '{"idx":1,"action_type":"click"}',
        '{"action_type": "click", "idx": "1", "why": {"a": [1, {"idx": 2}]}, "x": null, "y": -1.5e3, "z": true}',
        '{"plan": ["a"], "n": {}}\n' + CLICK,
        f'{{"action": {CLICK}, }} {CLICK}',
    ],
)
def test_an_object_is_read_in_fences_and_among_words(text):
    action = LANGUAGE.decode(text, SCREEN)
    assert action is not None
    assert LANGUAGE.encode(action, SCREEN) == CLICK


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it's {'action_type': 'type', 'text': 'it\\'s \"so\"\\n'}", 'it\'s "so"\n'),
        ('{"action_type": "type", "text": "a\nb"}', "a\nb"),
        ('{"action_type": "type", "text": ""}', ""),
        ('{"action_type": "type", "text": "{\\"action_type\\": \\"click\\", \\"idx\\": 1}"}', CLICK),
        ('{"action_type": "type", "text": "</p><p id=3>"}', "</p><p id=3>"),
        ('{"action_type": "type", "text": "\\u00e9 \\\\"}', "é \\"),
    ],
)
def test_text_is_data(text, words):
    assert LANGUAGE.decode(text, SCREEN) == Action.type_text(words)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON object"),
        ("no idea", "no JSON object"),
        ("{action_type: click}", "no JSON object"),
        ('{"action_type": "click", "idx": }', "no JSON object"),
        ('{"action_type": "click", "idx": 1', "no JSON object"),
        ('{"action_type": 3}', "no JSON object"),
        ('{"action_type": "click", "action_type": "click", "idx": 1}', "no JSON object"),
        (f'{{"action": {CLICK}}}', "no JSON object"),
        (f'{{"plan": [{CLICK}]}}', "no JSON object"),
        ('{"action_type": "tap", "idx": 1}', "action_type must be one of click, long_press, scroll"),
        ('{"action_type": "Click", "idx": 1}', "action_type must be"),
        ('{"action_type": ""}', "action_type must be"),
        ('{"action_type": "click"}', "from 0 to 2"),
        ('{"action_type": "click", "idx": 3}', "from 0 to 2"),
        ('{"action_type": "click", "idx": -1}', "from 0 to 2"),
        ('{"action_type": "click", "idx": 1e9}', "from 0 to 2"),
        ('{"action_type": "click", "idx": 1.0}', "from 0 to 2"),
        ('{"action_type": "click", "idx": true}', "from 0 to 2"),
        ('{"action_type": "click", "idx": null}', "from 0 to 2"),
        ('{"action_type": "click", "idx": [1]}', "from 0 to 2"),
        ('{"action_type": "click", "idx": "one"}', "from 0 to 2"),
        ('{"action_type": "click", "idx": "-1"}', "from 0 to 2"),
        ('{"action_type": "click", "idx": "1e9"}', "from 0 to 2"),
        ('{"action_type": "click", "idx": "²"}', "from 0 to 2"),
        ('{"action_type": "click", "idx": ' + "9" * 24 + "}", "from 0 to 2"),
        ('{"action_type": "scroll"}', "direction of a scroll"),
        ('{"action_type": "scroll", "direction": "top"}', "direction of a scroll"),
        ('{"action_type": "scroll", "direction": ["up"]}', "direction of a scroll"),
        ('{"action_type": "type"}', "type needs text"),
        ('{"action_type": "type", "text": 7}', "type needs text"),
        ('{"action_type": "type", "text": ["a"]}', "type needs text"),
        ('{"action_type": "type", "text": "\\ud800"}', "not valid Unicode"),
        (f'{CLICK} or {{"action_type": "status_complete"}}', "two actions"),
    ],
)
def test_what_is_not_an_action_has_a_reason(text, problem):
    assert LANGUAGE.decode(text, SCREEN) is None
    assert problem in LANGUAGE.problem(text, SCREEN)


def test_mutated_answers_are_actions_or_none():
    rng, decoded = random.Random(0), 0
    answers = [text for _, text in ACTIONS]
    answers += [f"```json\n{text}\n```" for text in answers] + [text.replace('"', "'") for text in answers]
    pieces = [*"{}[]\"',:()\\`\n0123456789.-", "null", "true", "1e999", "NaN", '"idx": ', CLICK, "\ud800", "</p>"]
    for _ in range(20_000):
        text = rng.choice(answers)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(pieces) * rng.choice((0, 1, 1, 5)) + text[at + rng.choice((0, 0, 1, 8)) :]
        action, box = LANGUAGE.decode(text, SCREEN), LANGUAGE.predicted_box(text, SCREEN)
        assert (action is None) == (LANGUAGE.problem(text, SCREEN) is not None)
        assert box is None or action.is_tap
        decoded += action is not None
    assert 2_000 < decoded < 18_000


@given(st.text())
def test_any_text_is_an_action_or_none(text):
    for answer in (text, f'{{"action_type": "type", "text": {text}', f'{{"action_type": "click", "idx": {text}}}'):
        action = LANGUAGE.decode(answer, SCREEN)
        assert action is None or LANGUAGE.decode(LANGUAGE.encode(action, SCREEN), SCREEN) is not None


@pytest.mark.parametrize(
    "text",
    [
        "{" * 1_000_000,
        "[" * 1_000_000,
        '"' * 1_000_000,
        '{"' * 500_000,
        "{'" * 500_000,
        '{"a":' * 200_000,
        '{"a":[' * 160_000,
        '{"a": {"b": [' * 80_000,
        '{"a":"{",' * 110_000,
        "{':\"\",'" * 140_000,
        '{"a": "' + "\\" * 1_000_001,
        '{"action_type": "type", "text": "' + "\\" * 1_000_001,
        '{"action_type": "click", "idx": ' + "9" * 1_000_000 + "}",
        '{"action_type": "click", "idx": "' + "9" * 1_000_000 + '"}',
        '{"action_type": "click", "idx": ' + " " * 1_000_000,
        '{"action_type": "' + "a" * 1_000_000 + '"}',
        '{"a": 1} ' * 110_000,
    ],
    ids=lambda text: text[:24],
)
def test_a_megabyte_is_refused_within_seconds(text):
    start = time.process_time()
    assert LANGUAGE.decode(text, SCREEN) is None
    LANGUAGE.ending(text)
    assert time.process_time() - start < 5


def test_a_megabyte_can_be_typed():
    action = Action.type_text("{9\\" * 300_000)
    assert LANGUAGE.decode(LANGUAGE.encode(action)) == action


TEXTS = [text for _, text in ACTIONS] + [
    LANGUAGE.encode(Action.tap(0.1234, 1)),
    LANGUAGE.encode(Action.long_press(0, 1)),
]


@given(st.sampled_from(TEXTS), st.integers(0, 60))
def test_every_prefix_of_an_action_has_an_ending_whose_every_character_shortens_the_rest(text, end):
    prefix = text[:end]
    ending = LANGUAGE.ending(prefix)
    assert ending is not None
    while ending:
        prefix += ending[0]
        rest = LANGUAGE.ending(prefix)
        assert len(rest) < len(ending)
        ending = rest
    assert LANGUAGE.decode(prefix, SCREEN) is not None or LANGUAGE.decode(prefix) is not None


@pytest.mark.parametrize(
    "text", ["tap", " ", '{"action_type": "fly', CLICK + " ", '{"action_type": "click", "idx": 01']
)
def test_a_text_that_no_action_starts_with_has_no_ending(text):
    assert LANGUAGE.ending(text) is None


def test_an_action_without_text_fits_the_limit_even_when_spelt_in_bytes():
    assert max(len(text) for text in TEXTS) < LANGUAGE.max_tokens


def test_settings_choose_the_language():
    assert language_settings({"name": "element_index"}).build() == LANGUAGE
    assert language_settings({"name": "element_index"}).model_dump() == {"name": "element_index"}  # as in older records
    assert language_settings({"name": "element_index", "names": True}).model_dump()["names"] is True
    assert language_settings({"name": "element_index", "names": True}).build() == BY_NAME
    assert "in quotation marks its text" in BY_NAME.instructions


def test_the_instructions_name_every_action_of_the_paper_and_say_what_up_is():
    for _, text in ACTIONS[3:11]:
        assert text.split('"')[3] in LANGUAGE.instructions
    assert "direction in which the finger moves" in LANGUAGE.instructions


def test_an_earlier_step_is_told_by_name_because_its_screen_is_not_shown():
    screen = Screen(
        None, (UiElement((0.0, 0.0, 0.5, 1.0), "Sound\n</p>"), UiElement((0.5, 0.0, 0.1, 1.0), "", "ICON_X"))
    )
    found = [LANGUAGE.in_words(action, screen) for action in (Action.tap(0.2, 0.5), Action.long_press(0.55, 0.5))]
    assert found == ["click on Sound &lt;/p&gt;", "long press ICON_X"]
    assert LANGUAGE.in_words(Action.tap(0.9, 0.25), screen) == "click on the point (250, 900)"
    assert LANGUAGE.in_words(Action.type_text("a\nb"), screen) == 'type "a b"'
    assert len(LANGUAGE.in_words(Action.type_text("word " * 20_000), screen)) < 2_100
