"""The language of CoAT: its written actions and its calls."""

import json

import pytest
from helpers.agents.coat_answers import CALLS, LANGUAGE, SCREEN, actions, call
from hypothesis import example, given
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.coat import CoatLanguage
from vlm_agent.action_languages.language import DECISION, SWIPES
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Screen, UiElement
from vlm_agent.models.word_tokenizer import build_word_tokenizer


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
