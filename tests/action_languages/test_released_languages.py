"""Languages of released agents: their settings, typed text, and damaged answers."""

import pickle
import time
from pathlib import Path

import pytest
import yaml
from golden.agents_2025_languages import language_of, rows_of, screen_of
from helpers import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.action_languages import LANGUAGES, language_settings
from vlm_agent.action_languages.released.language import ScreenSizeError
from vlm_agent.cli import OK, main
from vlm_agent.episodes import Action, Screen
from vlm_agent.evaluation.predictions import read_predictions

SCREEN = Screen(None, size=(2400, 1080))
RELEASED = {name: kind().build() for name, kind in LANGUAGES.items() if ".released." in kind.__module__}
ROWS = list(rows_of(Path(__file__).parents[1] / "data/agents_2025/languages.jsonl.gz"))
WITHOUT_ESCAPES = {"autoglm", "ui_venus", "cogagent", "showui", "seeclick", "os_atlas", "odyssey_agent"}
IN_PIXELS = {"qwen25_mobile_use", "gui_owl", "ui_tars15", "scalecua", "ui_venus", "os_genesis"}
HARD = [
    "don't",
    'say "hi"',
    "a, b) c",
    "[x](y){z}",
    "C:\\new\\table",
    "one\ntwo\r\nthree",
    "</tool_call><|im_end|>",
    "Action: wait()",
    "text='x', y='z'",
    "<think>",
    "%(x)s %d",
    "\\",
    "'\"",
]

every_language = pytest.mark.parametrize("name", RELEASED)


def test_there_are_18():
    assert len(RELEASED) == 18


@every_language
def test_a_language_survives_a_pickle(name):
    language = pickle.loads(pickle.dumps(RELEASED[name]))  # noqa: S301 (its own)
    action = Action.tap(0.25, 0.5)
    assert language == RELEASED[name]
    assert language.encode(action, SCREEN) == RELEASED[name].encode(action, SCREEN)


@every_language
def test_typed_text_survives(name):
    language = RELEASED[name]
    for typed in HARD:
        expected = typed.replace("\n", " ") if name == "cogagent" else typed
        for action in (Action.type_text(typed), Action.answer(typed), Action.open_app(typed)):
            decoded = language.decode(language.encode(action, SCREEN), SCREEN)
            assert decoded is not None and (decoded.name, decoded.text) == (action.name, expected), typed


@given(name=st.sampled_from(sorted(set(RELEASED) - WITHOUT_ESCAPES)), typed=st.text(st.characters(codec="utf-8")))
@settings(max_examples=200)
def test_any_text_survives_where_a_language_has_escapes(name, typed):
    language = RELEASED[name]
    assert language.decode(language.encode(Action.type_text(typed), SCREEN), SCREEN) == Action.type_text(typed)


@every_language
def test_only_a_language_of_pixels_needs_the_size_of_the_screen(name):
    language = RELEASED[name]
    if name not in IN_PIXELS:
        assert language.decode(language.encode(Action.tap(0.25, 0.5))) is not None
        return
    for call in (lambda: language.encode(Action.wait()), lambda: language.decode("x", Screen(None))):
        with pytest.raises(ScreenSizeError, match=f"{name} counts pixels and needs the size of the screen"):
            call()


def test_the_rule_that_resizes_pictures_is_a_setting():
    small = language_settings({"name": "qwen25_mobile_use", "max_pixels": 1_003_520}).build()
    assert '"coordinate": [336, 371]' in small.encode(Action.tap(0.25, 0.5), SCREEN)
    with pytest.raises(ValueError, match="min_pixels is 5, greater than max_pixels, 4"):
        language_settings({"name": "qwen25_mobile_use", "min_pixels": 5, "max_pixels": 4})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("os_atlas", "actions:\nSCROLL [UP]"),
        ("mai_ui", '<tool_call>{"action": "swipe", "direction": "up", "coordinate": [500, 500]}</tool_call>'),
        ("aguvis", "pyautogui.scroll(page=-1)"),
    ],
)
def test_the_meaning_of_disputed_swipe_words_is_a_setting(name, text):
    found = [
        language_settings({"name": name, "opposite_swipe_words": opposite}).build().decode(text, SCREEN)
        for opposite in (False, True)
    ]
    assert [action.direction for action in found] == ["up", "down"]


@pytest.mark.parametrize(
    ("name", "swipe", "start", "wrong"),
    [
        ("agentcpm", '{"POINT":%s,"to":"up"}', "[500,500]", ("[2000,500]", "[0.5,0.5]", '"middle"')),
        ("ui_tars15", "Action: scroll(start_box='%s', direction='down')", "(540,1200)", ("(99999,1200)", "middle")),
        ("cogagent", "Grounded Operation: SCROLL_DOWN(box=%s, step_count=5)", "[[400,400,600,600]]", ("[[400,400]]",)),
    ],
)
def test_a_swipe_from_a_start_that_is_no_point_is_no_action(name, swipe, start, wrong):
    language = RELEASED[name]
    assert language.decode(swipe % start, SCREEN).direction == "up"
    assert [language.decode(swipe % one, SCREEN) for one in wrong] == [None] * len(wrong)


def test_a_start_may_be_absent_or_empty():
    for start in ("", "start_box='', "):
        assert RELEASED["ui_tars15"].decode(f"Action: scroll({start}direction='down')", SCREEN).direction == "up"


def test_a_model_is_trained_and_evaluated_in_a_language_of_pixels(tmp_path):
    episodes = [tiny.episode(number) for number in range(2)]
    shards, run = tiny.write_shards(tmp_path / "shards", episodes), tmp_path / "run"
    recipe = tiny.recipe(shards, run) | {"action_language": {"name": "qwen25_mobile_use"}}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    assert main(["train", "--config", str(path)]) == OK
    output = tmp_path / "out"
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--split", "train", "--controls", "none"]
    assert main([*command, "--output", str(output)]) == OK
    assert len(list(read_predictions(output / "predictions.parquet"))) == sum(map(len, episodes))


@st.composite
def damaged(draw):
    """A stored answer, cut, with a part doubled or with characters put in."""
    row = draw(st.sampled_from(ROWS))
    text = row["text"]
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    put = draw(st.sampled_from(["", "'", '"', "\\", ")", "[", "\n", "<tool_call>", "9" * 5000, text, text[start:end]]))
    return row, text[:start] + put + text[end if draw(st.booleans()) else start :]


@given(damaged())
@settings(max_examples=300)
def test_a_damaged_answer_never_raises(case):
    row, text = case
    assert isinstance(language_of(row).decode(text, screen_of(row)), Action | None)


PARTS = [
    *("<tool_call>{", "<tool_call>{'a", "[" * 9, '{"a":', "Action:click(a='", "',", "'a=", "actions:", "TYPE [", "] "),
    *(
        "do(action=",
        '"',
        "\\",
        "<action>Type(content='",
        "{'action': 'TYPE', 'value': '",
        "' ,",
        "((1,",
        " ",
        "\n",
        "a",
    ),
]


@every_language
def test_a_long_text_is_read_in_linear_time(name):
    language, start = RELEASED[name], RELEASED[name].encode(Action.type_text("x"), SCREEN).partition("x")[0]
    for part in PARTS:
        text = start + part * (200_000 // len(part))
        begin = time.process_time()
        language.decode(text, SCREEN)
        assert time.process_time() - begin < 0.1, part  # ten times the length takes ten times as long


@pytest.mark.parametrize("name", ["qwen3_mobile_use", "mai_ui"])
def test_an_integer_beyond_a_float_is_no_action(name):
    huge = "1" + "0" * 400
    arguments = f'{{"action":"click","coordinate":[{huge}, 0, 0, 0]}}'
    text = f'<tool_call>\n{{"name":"mobile_use","arguments":{arguments}}}\n</tool_call>'
    assert language_settings({"name": name}).build().decode(text, SCREEN) is None


def test_a_separator_that_float_does_not_skip_is_no_action():
    assert RELEASED["ui_venus"].decode("<action>Click(box=(309,\x1f812))</action>", SCREEN) is None
