"""Steps as source and target, as in Auto-UI."""

import gzip
import json
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.data.step_ids import source_ids, source_text, target_of, target_text
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vlm_agent.action_languages import LanguageVocabulary, language_settings
from vlm_agent.episodes import ACTION_NAMES, Action, ActionKind, Episode, Screen, Step, UiElement
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import IGNORED, ROLES
from vlm_agent.sentences.steps import PHRASES, StepSentences, TooLongError

LANGUAGE = language_settings({"name": "auto_ui"}).build()
PLAIN = language_settings({"name": "auto_ui", "normalised": False}).build()
COPIES = Path(__file__).parents[1] / "data/auto_ui"
GOAL = 'open  app "Clock" '
ACTIONS = (
    Action.press("home"),
    Action.swipe((0.9, 0.5), (0.1, 0.5)),
    Action.tap(0.4984, 0.607),
    Action.type_text("ebay"),
    Action.complete(),
)
GESTURE = Action.swipe((0.541063666343689, 0.5073748230934143), (0.001115699764341116, 0.5788536071777344))
ELEMENTS = (UiElement((0.0, 0.0, 0.25, 0.5), "Clock"), UiElement((0.5, 0.0, 0.25, 1.0), "", "ICON_HOME"))
STEPS = tuple(Step(None, action, ELEMENTS) for action in ACTIONS)
EPISODE = Episode("e", "general", GOAL, STEPS)
SCREEN = STEPS[0].screen
TEXTS = [LANGUAGE.encode(action) for action in ACTIONS]
FEATURES = [np.full((2, 3), number, np.float16) for number in range(len(STEPS))]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerBase:
    vocabulary = LANGUAGE.vocabulary()
    vocabulary = LanguageVocabulary((*vocabulary.phrases, *PHRASES), vocabulary.coordinates)
    return build_word_tokenizer([GOAL, "Clock", "ebay"], vocabulary, 2000)


@pytest.fixture(scope="module")
def t5(shared) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(shared / "weights/t5-tokenizer")


@pytest.fixture
def sentences(words) -> StepSentences:
    return StepSentences(words, LANGUAGE)


def test_a_source_has_the_latest_actions_and_the_goal(sentences):
    texts = [source_text(sentences, GOAL, STEPS[:number], SCREEN) for number in (0, 2)]
    assert texts == [
        'Previous Actions: Goal: open app "Clock"',
        f'Previous Actions: {TEXTS[0]} {TEXTS[1]} Goal: open app "Clock"',
    ]
    two = replace(sentences, history=2)
    assert source_text(two, GOAL, STEPS, SCREEN) == f'Previous Actions: {TEXTS[3]} {TEXTS[4]} Goal: open app "Clock"'
    none = replace(sentences, history=0)
    assert source_text(none, GOAL, STEPS, SCREEN) == 'Goal: open app "Clock"'


def test_a_source_ends_with_the_screen_if_the_recipe_wants_elements(sentences):
    described = replace(sentences, history=0, elements=True)
    text = source_text(described, "go", (), SCREEN)
    assert text.startswith(
        'Goal: go Screen: <p id=0 class="text" alt="(0.0000, 0.0000, 0.2500, 0.5000)">Clock</p> <img'
    )
    for elements in ((), None):
        assert source_text(described, "go", (), Screen(None, elements)) == "Goal: go Screen:"


def test_a_target_has_the_types_to_come_and_the_action(sentences):
    assert target_text(sentences, STEPS) == (
        f"Action Plan: [PRESS_HOME,DUAL_POINT,DUAL_POINT,TYPE] ; Action Decision: {TEXTS[0]}"
    )
    assert target_text(sentences, STEPS[4:]) == f"Action Plan: [STATUS_TASK_COMPLETE] ; Action Decision: {TEXTS[4]}"
    one = replace(sentences, future=1)
    assert target_text(one, STEPS) == f"Action Plan: [PRESS_HOME] ; Action Decision: {TEXTS[0]}"
    assert target_text(replace(sentences, future=0), STEPS) == f"Action Decision: {TEXTS[0]}"


def test_ids_are_those_of_the_text_and_the_end_mark(sentences, words):
    for history, future, elements in product((0, 8), (0, 4), (False, True)):
        one = replace(sentences, history=history, future=future, elements=elements)
        source, target = one.source(GOAL, STEPS[:4], SCREEN), target_of(one, STEPS)
        assert (source.dropped, source.cut) == (0, 0)
        assert words.decode(source_ids(one, source)) == source_text(one, GOAL, STEPS[:4], SCREEN) + "</s>"
        assert words.decode(target.plan_ids + target.decision_ids) == target_text(one, STEPS) + "</s>"
        assert words.decode(target.plan_ids).endswith("Action Decision:")
        assert target.decision_ids[-1] == one.end_mark == words.eos_token_id


def test_a_sentence_reads_the_source_and_learns_plan_and_decision(sentences):
    sentence = sentences.build(EPISODE, 1, FEATURES[1:2])
    source, target = sentences.source(GOAL, STEPS[:1], SCREEN), target_of(sentences, STEPS[1:])
    assert sentence.input_ids == source_ids(sentences, source) + target.plan_ids + target.decision_ids
    assert sentence.labels == [IGNORED] * len(source_ids(sentences, source)) + target.plan_ids + target.decision_ids
    end = len(source_ids(sentences, source)) + len(target.plan_ids)
    assert set(sentence.roles[len(source_ids(sentences, source)) : end]) == {ROLES.index("plan")}
    assert set(sentence.kinds[:end]) == {-1}
    assert set(sentence.roles[end:]) == {ROLES.index("action")}
    assert set(sentence.kinds[end:]) == {ACTION_NAMES.index("swipe")}
    assert [screen is FEATURES[1] for screen in sentence.screens] == [True]
    assert sentence.about == "episode e step 1"


def test_the_features_of_past_screens_come_before_the_current_ones(sentences):
    past = replace(sentences, past_screens=2)
    assert [list(past.screen_numbers(number)) for number in (0, 1, 4)] == [[0], [0, 1], [2, 3, 4]]
    sentence = past.build(EPISODE, 4, FEATURES[2:])
    assert [screen[0, 0] for screen in sentence.screens] == [2, 3, 4]
    with pytest.raises(ValueError, match="has 3 screens, expected 2"):
        past.build(EPISODE, 1, FEATURES[:3])


def test_a_long_source_loses_the_oldest_actions_first(sentences):
    whole = sentences.source(GOAL, STEPS[:4], SCREEN)
    for over, dropped in ((1, 1), (2, 1), (5, 3)):
        short = replace(sentences, max_source_tokens=len(source_ids(sentences, whole)) - over)
        source = short.source(GOAL, STEPS[:4], SCREEN)
        assert (source.dropped, source.cut) == (dropped, 0)
        assert source_ids(sentences, source) == source_ids(sentences, sentences.source(GOAL, STEPS[dropped:4], SCREEN))
    exactly = replace(sentences, max_source_tokens=len(source_ids(sentences, whole)))
    assert exactly.source(GOAL, STEPS[:4], SCREEN) == whole


def test_then_it_loses_the_end_of_the_screen_and_never_the_goal(sentences, words):
    described = replace(sentences, elements=True)
    alone = described.source(GOAL, (), SCREEN)
    short = replace(described, max_source_tokens=len(source_ids(sentences, alone)) - 5)
    source = short.source(GOAL, STEPS[:4], SCREEN)
    assert (source.dropped, source.cut) == (4, 5)
    assert source_ids(sentences, source) == [*source_ids(sentences, alone)[:-6], words.eos_token_id]
    goal_alone = source_ids(sentences, sentences.source(GOAL, (), SCREEN))
    shortest = replace(described, max_source_tokens=len(goal_alone)).source(GOAL, STEPS[:4], SCREEN)
    assert source_ids(sentences, shortest) == goal_alone
    assert shortest.cut == len(source_ids(sentences, alone)) - len(goal_alone)


def test_a_goal_that_is_too_long_by_itself_is_an_error_with_the_length_it_needs(sentences):
    needed = len(source_ids(sentences, sentences.source("go", (), SCREEN)))
    assert (
        len(source_ids(sentences, replace(sentences, max_source_tokens=needed).source("go", STEPS, SCREEN))) == needed
    )
    with pytest.raises(TooLongError, match=rf"'go' takes {needed} tokens .* data.max_source_tokens \({needed - 1}\)"):
        replace(sentences, max_source_tokens=needed - 1).source("go", STEPS, SCREEN)


def test_a_target_that_is_too_long_is_not_learned(sentences):
    length = len(target_of(sentences, STEPS))
    assert replace(sentences, max_target_tokens=length).unlearnable(STEPS) is None
    short = replace(sentences, max_target_tokens=length - 1)
    assert (
        short.unlearnable(STEPS) == f"its target has {length} tokens, more than data.max_target_tokens ({length - 1})"
    )
    with pytest.raises(ValueError, match="step 0 cannot be learned: its target"):
        short.build(EPISODE, 0, FEATURES[:1])


def test_plan_and_decision_of_an_answer(sentences):
    answer = target_text(sentences, STEPS)
    assert sentences.plan_of(answer) == ("PRESS_HOME", "DUAL_POINT", "DUAL_POINT", "TYPE")
    assert sentences.decision_of(answer) == TEXTS[0]
    assert sentences.plan_of(f"Action Decision: {TEXTS[0]}") == ()
    assert sentences.decision_of(TEXTS[0]) == TEXTS[0]
    typed = LANGUAGE.encode(Action.type_text("Action Plan: [A] Action Decision: b"))
    assert sentences.plan_of(f"Action Decision: {typed}") == ()
    assert sentences.decision_of(f"Action Decision: {typed}") == typed


@given(st.text() | st.lists(st.sampled_from(["Action Plan: [", "]", ",", "A", "Action Decision:", '"'])).map("".join))
def test_any_answer_has_a_plan_and_a_decision_or_none(text):
    sentences = StepSentences(None, LANGUAGE)
    assert all(sentences.plan_of(text))
    assert sentences.decision_of(text) in text


@pytest.mark.parametrize("future", [0, 1, 4])
def test_every_prefix_of_a_target_has_an_ending(sentences, future):
    one = replace(sentences, future=future)
    for number in range(len(STEPS)):
        text = target_text(one, STEPS[number:])
        for end in range(len(text) + 1):
            whole = text[:end] + one.ending(text[:end])
            assert LANGUAGE.decode(whole) is not None
            assert len(one.plan_of(whole)) == min(max(len(one.plan_of(whole)), 1), future)
        assert one.ending(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "Action Plan:[",
        "Action Plan: []",
        "Action Plan: [TAP",
        "Action Plan: [TYPE,",
        "Action Plan: [TYPE,TYPE,TYPE",
        "Action Plan: [TYP]",
        "Action Plan: [TYPE]; A",
        "Action Plan: [TYPE] ; Action Decision: tap",
        "Action Decision: ",
    ],
)
def test_a_text_that_no_target_starts_with_has_no_ending(sentences, text):
    ending = replace(sentences, future=2).ending(text)
    if text in ("A", "Action Plan: [TYPE,"):
        assert LANGUAGE.decode(text + ending) is not None
    else:
        assert ending is None


def test_sentences_pickle_for_the_workers_of_data_loaders(sentences):
    copy = pickle.loads(pickle.dumps(sentences))  # noqa: S301 (our own bytes)
    assert copy.source(GOAL, STEPS, SCREEN) == sentences.source(GOAL, STEPS, SCREEN)


def test_the_settings_of_a_recipe_build_the_same_sentences(words):
    numbers = {"history": 3, "future": 2, "past_screens": 1, "max_source_tokens": 99, "max_target_tokens": 77}
    data = DataRecipe(sentences="chain_of_actions", elements=True, **numbers)
    assert StepSentences.of(words, LANGUAGE, data) == StepSentences(words, LANGUAGE, 3, 2, True, 1, 99, 77)


def test_the_name_of_a_mark_in_a_text_is_text(sentences):
    steps = [Step(None, Action.type_text("</s><pad>"))]
    assert sentences.unlearnable(steps) is None
    ids = source_ids(sentences, sentences.source("</s> <s>", steps, SCREEN)) + target_of(sentences, steps).decision_ids
    assert ids.count(sentences.end_mark) == 2


def test_a_word_tokenizer_writes_a_plan_in_few_tokens(sentences):
    assert len(target_of(sentences, STEPS)) <= 12
    assert len(target_of(sentences, STEPS[2:])) <= 27


class TestT5:
    """With T5's own tokenizer."""

    def test_ids_are_those_of_the_whole_text(self, t5):
        content = json.loads(gzip.decompress((COPIES / "made.json.gz").read_bytes()))
        for setting in content["settings"]:
            language = LANGUAGE if setting["normalise_gestures"] else PLAIN
            limits = {"max_source_tokens": 10_000, "max_target_tokens": 10_000}
            parts = (setting["history"], setting["future"], setting["screen_description"])
            sentences = StepSentences(t5, language, *parts, **limits)
            for episode, strings in zip(content["episodes"], setting["strings"], strict=True):
                steps = tuple(_step(step) for step in episode["steps"])
                for number, (source, target) in enumerate(strings):
                    ids = source_ids(sentences, sentences.source(episode["goal"], steps[:number], steps[number].screen))
                    assert ids == t5(source).input_ids
                    learned = target_of(sentences, steps[number:])
                    assert learned.plan_ids + learned.decision_ids == t5(target).input_ids

    @pytest.mark.parametrize(
        ("language", "action", "tokens"),
        [
            (LANGUAGE, Action.tap(0.4984, 0.607), 55),
            (LANGUAGE, Action.tap(0.5678, 0.9021), 55),
            (LANGUAGE, Action.swipe((0.9, 0.5), (0.1, 0.5)), 51),
            (LANGUAGE, Action.press("home"), 55),
            (LANGUAGE, Action.complete(), 60),
            (LANGUAGE, Action.type_text(""), 52),
            (PLAIN, GESTURE, 78),
        ],
    )
    def test_tokens_of_an_action_with_its_end_mark(self, t5, language, action, tokens):
        assert len(target_of(StepSentences(t5, language), [Step(None, action)]).decision_ids) == tokens

    def test_a_history_without_normalisation_does_not_displace_the_goal(self, t5):
        past, sentences = [Step(None, GESTURE)] * 8, StepSentences(t5, PLAIN)
        assert len(t5(source_text(sentences, GOAL, past, SCREEN)).input_ids) > 600
        source = sentences.source(GOAL, past, SCREEN)
        assert (source.dropped, source.cut) == (2, 0)
        assert len(source_ids(sentences, source)) <= 512
        assert sentences.text(source_ids(sentences, source)).endswith('Goal: open app "Clock"')

    @pytest.mark.parametrize("text", ["<p>", "a ~ b", "{x}", "👋 hi", "日本", "½", "</s>", "<pad>", "^", "`"])
    def test_an_action_with_text_that_it_cannot_write_is_not_learned(self, t5, text):
        sentences = StepSentences(t5, LANGUAGE)
        steps = [Step(None, Action.type_text(text)), Step(None, Action.complete())]
        assert not sentences.is_writable(steps[0])
        assert sentences.unlearnable(steps) == "the tokenizer cannot write its text"
        assert sentences.unlearnable(steps[1:]) is None
        assert source_ids(sentences, sentences.source("find <it>", steps, SCREEN))[-1] == t5.eos_token_id

    @pytest.mark.parametrize(
        "text", ["", " lead", "trail ", "two  spaces", 'say "hi"', "über, café", "a\\b", "[x] 50%"]
    )
    def test_an_action_with_other_text_is_learned(self, t5, text):
        assert StepSentences(t5, LANGUAGE).is_writable(Step(None, Action.type_text(text)))


def _step(content: dict) -> Step:
    elements = tuple(UiElement(tuple(one["box"]), one["text"], one["type"]) for one in content["elements"])
    touch, lift = tuple(content["touch_yx"]), tuple(content["lift_yx"])
    return Step(None, Action(ActionKind[content["action_type"]], touch, lift, content["text"]), elements)
