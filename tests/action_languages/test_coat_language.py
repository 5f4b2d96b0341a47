"""The language of CoAT: its written actions, its calls, and answers of any shape."""

import gzip
import json
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from hypothesis import example, given
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.coat import ACTION_TYPES, CoatLanguage, predicted_box, predicted_type
from vlm_agent.action_languages.language import DECISION, SWIPES
from vlm_agent.datasets.shards.columns import read_columns
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Screen, UiElement
from vlm_agent.models.word_tokenizer import build_word_tokenizer

VERDICTS = Path(__file__).parents[1] / "data/coat/evaluator.jsonl.gz"
LANGUAGE = language_settings({"name": "coat"}).build()
coordinates = st.floats(0, 1) | st.floats(0, 1, width=32)
points = st.tuples(coordinates, coordinates)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text('ab \\\n\r)("`.;', max_size=12)
actions = st.one_of(
    points.map(lambda point: Action.tap(*point)),
    st.builds(Action.swipe, points, points),
    points.map(lambda point: Action.long_press(*point)),
    *(texts.map(make) for make in (Action.type_text, Action.open_app, Action.answer)),
    st.sampled_from([Action.wait(), Action.recents(), Action.complete(), Action.impossible()]),
    st.sampled_from([Action.press(button) for button in BUTTONS]),
)
ELEMENTS = (UiElement((0.1, 0.2, 0.2, 0.4)), UiElement((0.5, 0.5, 0.25, 0.5), "Wi-Fi"))
SCREEN = Screen(None, ELEMENTS)


def call(name: str | None, **arguments: object) -> str:
    return json.dumps({"ACTION": name, "ARGS": arguments})


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action.tap(0.49836, 0.60697), "CLICK(0.498, 0.607)"),
        (Action.tap(0, 1), "CLICK(0.000, 1.000)"),
        (Action.long_press(0.1, 0.0004), "LONG_PRESS(0.100, 0.000)"),
        (Action.swipe((0.8, 0.5), (0.2, 0.4)), "SCROLL(up)"),
        (Action.swipe((0.2, 0.5), (0.8, 0.4)), "SCROLL(down)"),
        (Action.swipe((0.2, 0.5), (0.3, 0.1)), "SCROLL(left)"),
        (Action.swipe((0.2, 0.5), (0.3, 0.9)), "SCROLL(right)"),
        (Action.type_text("what is CoAT"), "TYPE(what is CoAT)"),
        (Action.type_text("a (b) "), "TYPE(a (b) )"),
        (Action.type_text("a\\b\nc\rd"), r"TYPE(a\\b\nc\rd)"),
        (Action.type_text(""), "TYPE()"),
        (Action.open_app("Maps"), "OPEN_APP(Maps)"),
        (Action.answer("4"), "ANSWER(4)"),
        (Action.press("back"), "PRESS(back)"),
        (Action.press("home"), "PRESS(home)"),
        (Action.press("enter"), "PRESS(enter)"),
        (Action.recents(), "PRESS(recents)"),
        (Action.wait(), "WAIT()"),
        (Action.complete(), "STOP(completed)"),
        (Action.impossible(), "STOP(impossible)"),
    ],
)
def test_actions_are_written_as_in_the_paper(action, text):
    assert LANGUAGE.encode(action) == text


def test_a_swipe_is_vertical_from_nine_tenths_on_where_aitw_has_it_horizontal():
    for dy, text in ((0.29, "SCROLL(down)"), (0.27, "SCROLL(down)"), (0.269, "SCROLL(right)")):
        swipe = Action.swipe((0.0, 0.0), (dy, 0.3))
        assert swipe.direction == "right" and LANGUAGE.encode(swipe) == text
    assert LANGUAGE.encode(Action.swipe((0.9, 0.9), (0.625, 0.6))) == "SCROLL(up)"


@given(actions)
@example(Action.type_text(call("stop", task_status="success")))
@example(Action.type_text(f"{DECISION} CLICK(0.5, 0.5)"))
@example(Action.type_text("a)\nCLICK(0.5, 0.5"))
@example(Action.type_text("\\n"))
def test_decoding_returns_the_action_with_rounded_points_and_a_fixed_swipe(action):
    back = LANGUAGE.decode(LANGUAGE.encode(action))
    assert LANGUAGE.encode(back) == LANGUAGE.encode(action)
    assert (back.kind, back.name, back.text) == (action.kind, action.name, action.text)
    if action.is_swipe:
        assert (back.touch_yx, back.lift_yx) in SWIPES.values()
    elif action.kind in (ActionKind.DUAL_POINT, ActionKind.LONG_PRESS):
        assert back.touch_yx == pytest.approx(action.touch_yx, abs=0.0005 + 1e-12)


@given(
    actions, st.sampled_from([f"Action Plan: [TYPE,TYPE] ; {DECISION} ", f"{DECISION} ", "So:\n", "```\n", "`", " "])
)
def test_an_action_is_read_behind_a_plan_on_its_own_line_and_in_fences(action, before):
    text = LANGUAGE.encode(action)
    after = {"`": "`", "```\n": "\n```", "So:\n": "\nThat is all."}.get(before, "")
    assert LANGUAGE.decode(before + text + after) == LANGUAGE.decode(text)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("CLICK(0.5,0.25)", Action.tap(0.5, 0.25)),
        ("CLICK( 0.5 ,  1 ).", Action.tap(0.5, 1)),
        ('SCROLL("up")', Action.swipe(*SWIPES["up"])),
        ("PRESS(HOME)", Action.press("home")),
        (r"TYPE(C:\dir)", Action.type_text(r"C:\dir")),
    ],
)
def test_other_spellings_are_read(text, action):
    assert LANGUAGE.decode(text) == action


CALLS = [
    (call("click_element", bbox=[100, 200, 300, 600]), Action.tap(0.4, 0.2)),
    (call("click_element", bbox=[0, 0, 1000, 1000]), Action.tap(0.5, 0.5)),
    (call("click_element", bbox=[10.5, 20, 10.5, 20]), Action.tap(0.02, 0.0105)),
    (call("CLICK_ELEMENT", idx=0), Action.tap(0.2, 0.4)),
    (call("click_element", idx="1"), Action.tap(0.625, 0.75)),
    (call("scroll", direction="left"), Action.swipe(*SWIPES["left"])),
    (call("input", text='say "ACTION": "stop"\n\\'), Action.type_text('say "ACTION": "stop"\n\\')),
    (call("type", text=""), Action.type_text("")),
    (call("INPUT", text="ümlaut 漢字"), Action.type_text("ümlaut 漢字")),
    (call("press_back"), Action.press("back")),
    (call("press_HOME"), Action.press("home")),
    (call("press_enter"), Action.press("enter")),
    (call("stop", task_status="success"), Action.complete()),
    (call("stop", task_status="failure"), Action.impossible()),
]


@pytest.mark.parametrize(("text", "action"), CALLS)
def test_calls_are_read_bare_fenced_within_text_and_with_a_brace_missing(text, action):
    thought = json.dumps({"THINK": 'the "ACTION": "stop" is "ARGS": {"text": "not"} yet right'})[:-1] + ", "
    shapes = [
        text,
        f"```json\n{text}\n```",
        f"I see {{two}} lists.\nCLICK the first: {text}\nDone {{}}.",
        text[:-1],
        text[:-2],
        f"```json\n{text[:-2]}\n```",
        text[1:],
        thought + text[1:],
        json.dumps(json.loads(text), indent=2),
        json.dumps(dict(reversed(json.loads(text).items()))),
        f"[{text}, {call('stop', task_status='failure')}]",
    ]
    for shape in shapes:
        assert LANGUAGE.decode(shape, SCREEN) == action, shape


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CLICK",
        "CLICK(the icon)",
        "CLICK(0.5)",
        "CLICK(0.5, 0.5, 0.5)",
        "CLICK(1.2, 0.5)",
        "CLICK(-0.5, 0.5)",
        "CLICK(500, 300)",
        "CLICK(nan, 0.5)",
        "CLICK(0.5, 1/2)",
        "CLICK(0.5, 0.5",
        "I could PRESS(back) now",
        "SCROLL(top)",
        "SCROLL(__import__('os').system('true'))",
        "PRESS(menu)",
        "STOP()",
        "TYPE(\ud800)",
        "TYPE(a",
        "LONG_PRESS(2, 0)",
        call("click_element"),
        call("click_element", bbox=[300, 200, 100, 600]),
        call("click_element", bbox=[100, 600, 300, 200]),
        call("click_element", bbox=[100, 200, 1001, 600]),
        call("click_element", bbox=[-1, 200, 300, 600]),
        call("click_element", bbox=[100, 200, 300]),
        call("click_element", bbox=[100, 200, 300, 600, 700]),
        call("click_element", bbox=["left", "top", "right", "bottom"]),
        call("click_element", bbox=["100", "200", "300", "600"]),
        call("click_element", bbox=[100, 200, 300, True]),
        call("click_element", bbox=[float("nan"), 0, 1, float("inf")]),
        call("click_element", bbox=[[1, 2, 3, 4]]),
        call("click_element", bbox="100, 200, 300, 600"),
        call("click_element", bbox=None),
        call("click_element", idx=2),
        call("click_element", idx=-1),
        call("click_element", idx=1.5),
        call("click_element", idx=10**7),
        call("click_element", idx="x"),
        call("click_element", idx=None),
        call("click_element", idx=True),
        call("scroll"),
        call("scroll", direction="top"),
        call("scroll", direction=None),
        call("scroll", direction=["up"]),
        call("input"),
        call("input", text=None),
        call("input", text=7),
        call("input", text=["a"]),
        '{"ACTION": "input", "ARGS": {"text": "\\ud800"}}',
        '{"ACTION": "input", "ARGS": {"text": "cut',
        call("press"),
        call("press_menu"),
        call("stop"),
        call("stop", task_status="maybe"),
        call("fly"),
        call(""),
        call(None),
        '{"ACTION": 5, "ARGS": {}}',
        '{"ACTION": "input", "ARGS": null}',
        '{"ACTION": "input", "ARGS": ["text"]}',
        f"[{call('fly')}, {call('press_back')}]",
        f"[{json.dumps({'ACTION': 'click_element'})}, {call('click_element', idx=0)}]",
    ],
)
def test_what_is_not_an_action_is_none(text):
    assert LANGUAGE.decode(text, SCREEN) is None


def test_an_index_needs_elements_whose_centre_is_on_the_screen():
    text = call("click_element", idx=0)
    for screen in (None, Screen(None), Screen(None, ()), Screen(None, (UiElement((0.9, 0.9, 0.4, 0.4)),))):
        assert LANGUAGE.decode(text, screen) is None


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (call("click_element", bbox=[100, 200, 300, 600]), (0.2, 0.1, 0.4, 0.2)),
        (call("click_element", bbox=[522, 318, 1001, 351]), (0.318, 0.522, 0.033, 0.479)),
        (call("click_element", bbox=[300, 200, 100, 600]), None),
        (call("click_element", idx=1), ELEMENTS[1].box),
        (call("click_element", idx=2), None),
        (call("scroll", direction="up", bbox=[100, 200, 300, 600]), None),
        ("CLICK(0.5, 0.5)", None),
        ("", None),
    ],
)
def test_the_box_of_a_click_is_kept_for_scoring(text, box):
    assert predicted_box(text, SCREEN) == (None if box is None else pytest.approx(box))


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_a_click_taps_the_centre_of_its_box(sides):
    text = call("click_element", bbox=sides)
    action, box = LANGUAGE.decode(text), predicted_box(text)
    assert (action is None) == (box is None) == (sides[0] > sides[2] or sides[1] > sides[3])
    if action is not None:
        assert action == Action.tap(*UiElement(box).centre_yx)


def check_verdicts(path: Path) -> Counter[str]:
    """Compare every verdict's format hit and type, and the type of decoded actions; returns the number of cases by
    type, of actions under `action`."""
    counts: Counter[str] = Counter()
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        answer, gold, verdict = row["said"], row["gold"], row["gold_point"]
        height, width = row["size"]
        boxes = [(y / height, x / width, h / height, w / width) for y, x, h, w in gold["ui_positions"]]
        text, screen = json.dumps(answer), Screen(None, tuple(map(UiElement, boxes)))
        credited, action = predicted_type(text), LANGUAGE.decode(text, screen)
        assert (credited is not None) == verdict["format_hit"], answer
        assert (credited == gold["coat_action_desc"].split()[0]) == verdict["type_match"], answer
        counts[str(credited)] += 1
        if action is None:
            is_unusable_click = credited == "click" and _is_unusable(answer["ARGS"], len(boxes))
            assert credited is None or is_unusable_click, answer
        else:
            assert predicted_type(LANGUAGE.encode(action)) == credited, answer
            counts["action"] += 1
    return counts


def _is_unusable(arguments: dict, elements: int) -> bool:
    if "idx" in arguments:
        return not str(arguments["idx"]).isdigit() or int(arguments["idx"]) >= elements
    x1, y1, x2, y2 = arguments["bbox"]
    return x1 > x2 or y1 > y2 or max(x2, y2) > 1000


def test_calls_decode_to_the_type_that_the_published_evaluator_credits():
    counts = check_verdicts(VERDICTS)
    assert {*ACTION_TYPES, "None"} <= counts.keys()


def test_all_reference_calls_decode_to_the_type_that_the_published_evaluator_credits(shared):
    counts = check_verdicts(shared / "data/golden/coat_evaluator.jsonl.gz")
    assert counts.total() - counts["action"] == 3000
    assert counts["action"] > 2000


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (call("click_element", bbox=[3, 2, 1]), "click"),
        (call("stop"), "stop"),
        (call("fly"), None),
        ("CLICK(0.5, 0.5)", "click"),
        ("SCROLL(up)", "scroll"),
        ("TYPE(a)", "type"),
        ("PRESS(home)", "press"),
        ("STOP(impossible)", "stop"),
        ("WAIT()", None),
        ("CLICK(2, 2)", None),
    ],
)
def test_a_call_has_a_type_even_with_unusable_arguments(text, kind):
    assert predicted_type(text) == kind


def test_a_hundred_thousand_mutated_answers_are_actions_or_none():
    rng, decoded = random.Random(0), 0
    answers = [text for text, _ in CALLS]
    answers += [LANGUAGE.encode(action) for action in (Action.tap(0.5, 0.5), Action.type_text("a (b)"), *tiny.ACTIONS)]
    pieces = [
        *'{}[]",:()\\`\n0123456789.-',
        "null",
        "true",
        "1e999",
        "NaN",
        '"ACTION":',
        '"ARGS": {',
        "\ud800",
        DECISION,
    ]
    for _ in range(100_000):
        text = rng.choice(answers)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(pieces) * rng.choice((0, 1, 1, 5)) + text[at + rng.choice((0, 0, 1, 8)) :]
        action = LANGUAGE.decode(text, SCREEN)
        box = predicted_box(text, SCREEN)
        assert box is None or predicted_type(text) == "click"
        decoded += action is not None
    assert 10_000 < decoded < 90_000


@given(st.text())
def test_any_text_is_an_action_or_none(text):
    for answer in (text, f'"ACTION": "input", "ARGS": {{"text": {text}', f"CLICK({text})", f"TYPE({text}"):
        action = LANGUAGE.decode(answer, SCREEN)
        assert action is None or LANGUAGE.decode(LANGUAGE.encode(action)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        " " * 1_000_000,
        "{" * 1_000_000,
        "[" * 1_000_000,
        '"' * 1_000_000,
        "\n" * 1_000_000,
        "CLICK(" * 160_000,
        "CLICK(\n" * 140_000,
        "TYPE(\n" * 160_000,
        f"{DECISION} TYPE(" * 50_000,
        "CLICK(0." + "9" * 1_000_000 + ", 0.5)",
        "CLICK(" + " " * 1_000_000 + "x)",
        "SCROLL(" + "a" * 1_000_000 + ")",
        '{"ACTION": ' * 90_000,
        '"ACTION": "input", "ARGS": {' * 35_000,
        '"ACTION"' + " " * 1_000_000,
        '"ACTION": "' + "a" * 1_000_000,
        '"ACTION": "input", "ARGS": {' + '"text" ' * 140_000,
        '"ACTION": "input", "ARGS": {"text": "' + "\\" * 1_000_001,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + "9" * 1_000_000,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + "1, " * 300_000,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + " " * 1_000_000,
        '"ACTION": "click_element", "ARGS": {"idx": ' + "9" * 1_000_000,
        '"ACTION": "click_element", "ARGS": ' + '{"a": ' * 160_000,
    ],
    ids=lambda text: text[:24],
)
def test_a_megabyte_is_refused_within_a_second(text):
    start = time.perf_counter()
    assert LANGUAGE.decode(text, SCREEN) is None
    assert predicted_box(text, SCREEN) is None
    predicted_type(text)
    LANGUAGE.ending(text)
    assert time.perf_counter() - start < 1


def test_a_megabyte_can_be_typed():
    action = Action.type_text("{9\\" * 300_000)
    assert LANGUAGE.decode(LANGUAGE.encode(action)) == action
    assert LANGUAGE.decode(call("input", text=action.text)) == action


@given(actions, st.integers(0, 60))
def test_every_prefix_of_an_action_has_an_ending_whose_every_character_shortens_the_rest(action, end):
    text = LANGUAGE.encode(action)[:end]
    ending = LANGUAGE.ending(text)
    assert LANGUAGE.decode(text + ending) is not None
    while ending:
        text += ending[0]
        rest = LANGUAGE.ending(text)
        assert len(rest) < len(ending)
        ending = rest


@given(actions)
def test_a_whole_action_needs_no_ending(action):
    assert LANGUAGE.ending(LANGUAGE.encode(action)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "tap",
        " ",
        "CLICK(2",
        "CLICK(1.5",
        "CLICK(0.5,",
        "CLICK(0.500,0",
        "CLICK(0.5000",
        "CLICK(0.500, 0.500) ",
        "SCROLL(to",
        "TYPE(a\nb",
        "TYPE(\ud800",
        '{"ACTION',
    ],
)
def test_a_text_that_no_action_starts_with_has_no_ending(text):
    assert LANGUAGE.ending(text) is None


def test_steps_with_equal_keys_have_equal_texts(tmp_path):
    rng = np.random.default_rng(0)
    near = np.float32(rng.integers(0, 41, (80, 4)) / 40 + rng.choice([0, 1e-7, -1e-7], (80, 4))).clip(0, 1).tolist()
    steps = [Action.swipe((a, b), (c, d)) for a, b, c, d in near]
    steps += [Action.tap(a, b) for a, b, _, _ in near] + [Action.long_press(a, b) for a, b, _, _ in near]
    steps += [Action.tap(number / 2000, 0.5) for number in range(1, 40)]  # ties between two thousandths
    steps += [*map(Action.type_text, ("a", "b", "a")), Action.open_app("a"), *tiny.ACTIONS]
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0, tuple(steps), (2, 2))])
    dataset = ShardDataset(shards)
    keys = LANGUAGE.text_keys(read_columns(dataset))
    by_key: dict[int, set[str]] = {}
    for key, step in zip(keys.tolist(), dataset[0].steps, strict=True):
        by_key.setdefault(key, set()).add(LANGUAGE.encode(step.action))
    assert all(len(found) == 1 for found in by_key.values())
    assert len(by_key) < len(keys)


@pytest.mark.parametrize(
    ("action", "most"),
    [
        (Action.press("back"), 1),
        (Action.complete(), 1),
        (Action.swipe((0.9, 0.5), (0.1, 0.5)), 1),
        (Action.tap(0.4984, 0.607), 6),
        (Action.tap(0.5, 1), 12),
        (Action.long_press(0.1234, 0.9876), 6),
        (Action.type_text("ebay"), 3),
    ],
)
def test_a_word_tokenizer_writes_an_action_in_few_tokens(action, most):
    tokenizer = build_word_tokenizer(["ebay"], LANGUAGE.vocabulary(), 2000)
    text = LANGUAGE.encode(action)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert len(ids) <= most
    assert tokenizer.decode(ids) == text


def test_an_action_without_text_fits_the_limit_even_when_spelt_in_bytes():
    assert len(LANGUAGE.encode(Action.long_press(0.5, 0.5))) < LANGUAGE.max_tokens


def test_settings_choose_the_language():
    assert language_settings({"name": "coat"}).build() == CoatLanguage()


def test_the_instructions_name_every_action_of_the_paper():
    for text in ("CLICK(0.250, 0.500)", "SCROLL(", "TYPE(", "PRESS(", "STOP(completed)", "STOP(impossible)", *BUTTONS):
        assert text in LANGUAGE.instructions
