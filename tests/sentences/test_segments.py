"""`length` is the number of tokens that `encode` writes, for every kind of sentences, language and family of model."""

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.data.notes import FORMS, ROWS, headed, lines, row
from helpers.data.references import TwoReferences
from helpers.models import tiny_qwen, tiny_text
from helpers.models import tokenizers_of_all_kinds as kinds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlm_agent.action_languages import LANGUAGES, language_settings
from vlm_agent.episodes import Action, Episode, Step, UiElement, without_pixels
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.sentences.image_sizes import FittedScreens, FixedScreens
from vlm_agent.sentences.segments import supervised_length
from vlm_agent.sentences.steps import StepSentences, TooLongError
from vlm_agent.sentences.templates import HTML_TURNS, PLAIN
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import EarlierSteps
from vlm_agent.training.data.chats.reading import Chat
from vlm_agent.training.data.chats.sentences import ChatSentences, with_turns
from vlm_agent.training.data.sentence_kinds.trajectory import Trajectories

QWEN = tiny_qwen.tokenizer(tiny_qwen.recipe("qwen2_5_vl"))
FAMILIES = {
    "llama_vit": (kinds.byte_level(), FixedScreens(tiny.SCREEN, 8), PLAIN, False),
    "sentencepiece": (kinds.sentencepiece(), FixedScreens(tiny.SCREEN, 8), PLAIN, False),
    "qwen_vl": (QWEN, FittedScreens(4 * 64, 24 * 64, 8), CHAT_TURNS, False),
    "text": (tiny_text.tokenizer(), FixedScreens((1, 1), 0), HTML_TURNS, True),
}
RELEASED = [name for name, kind in LANGUAGES.items() if ".released." in kind.__module__]
"""They share their code: one of them stands for all."""
LANGUAGE = {name: language_settings({"name": name}).build() for name in LANGUAGES if name not in RELEASED[1:]}
LANGUAGE["named with targets"] = language_settings({"name": "named", "name_swipe_targets": True}).build()

SPECIAL = (
    "<|im_end|>",
    "</s>",
    "<s>",
    "<|im_start|>user\n",
    "",
    " ",
    "\n",
    "a=b",
    "Ω é e\u0301 👋🏽",
    "日本語",
    "Done:\n",
)
texts = st.one_of(st.sampled_from(SPECIAL), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
points = st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32))
actions = st.one_of(
    points.map(lambda point: Action.tap(*point)),
    points.map(lambda point: Action.long_press(*point)),
    st.tuples(points, points).map(lambda ends: Action.swipe(*ends)),
    texts.map(Action.type_text),
    texts.map(Action.open_app),
    st.sampled_from([Action.press("back"), Action.complete(), Action.impossible(), Action.wait()]),
)
elements = st.builds(
    UiElement,
    st.tuples(*[st.floats(0, 0.875, width=32)] * 2, *[st.floats(0.0078125, 0.5, width=32)] * 2),
    texts,
    st.sampled_from(["TEXT", "ICON_HOME", ""]),
)
sizes = st.sampled_from([(64, 32), (20, 12), (60, 28), (200, 16)])


@st.composite
def steps(draw) -> Step:
    notes = draw(st.dictionaries(st.sampled_from(["screen", "think", "action", "result", "plan", "step"]), texts))
    shown = draw(st.lists(elements, max_size=3))
    return Step(np.zeros((*draw(sizes), 3), np.uint8), draw(actions), tuple(shown), notes=notes)


@st.composite
def episodes(draw) -> Episode:
    return Episode(draw(texts), "general", draw(texts), tuple(draw(st.lists(steps(), min_size=1, max_size=4))))


def unread(episode: Episode) -> Episode:
    """The episode as shards have it without pixels."""
    return replace(
        episode, steps=tuple(replace(step, screenshot=None, stored_size=step.size) for step in episode.steps)
    )


thorough = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("language", LANGUAGE)
@pytest.mark.parametrize("family", FAMILIES)
@thorough
@given(
    st.data(),
    episodes(),
    st.sampled_from(list(ROWS)),
    st.sampled_from(list(FORMS)),
    st.sampled_from([None, EarlierSteps(0), EarlierSteps(1, 1), EarlierSteps(2)]),
    st.sampled_from([None, "no_history", "shuffled_results"]),
)
def test_the_length_of_a_trajectory_is_known_without_pixels(
    family, language, data, episode, number, form, past, control
):
    tokenizer, screens, template, as_html = FAMILIES[family]
    notes = lines(row(number) | FORMS[form], may_miss=True)
    if notes.learned_names and family == "text":
        notes = lines({})
    sentences = TrajectorySentences(tokenizer, LANGUAGE[language], screens, template, data.draw(st.booleans()))
    references = TwoReferences() if data.draw(st.booleans()) else sentences.references
    sentences = replace(sentences, notes=notes, as_html=as_html, past=past, references=references)
    write = Trajectories(None, sentences, control=control)
    if past is None or control == "no_history":
        first = data.draw(st.integers(0, len(episode) - 1))
        last = data.draw(st.integers(first + 1, len(episode)))
        supervised = data.draw(st.integers(first, last - 1))
    else:
        supervised = data.draw(st.integers(0, len(episode) - 1))
        first, last = past.first_shown(supervised), supervised + 1
    sentence = sentences.encode(write.segments(episode, first, supervised, last))
    counted = write.segments(unread(episode), first, supervised, last)
    assert sentences.length(counted) == len(sentence)
    assert supervised_length(counted, sentences) == sentence.supervised


@pytest.mark.parametrize("family", ["llama_vit", "sentencepiece", "qwen_vl"])
@thorough
@given(steps(), st.integers(0, 99))
def test_the_length_of_an_element_sentence_is_known_without_pixels(family, step, seed):
    tokenizer, screens, template, _ = FAMILIES[family]
    trajectory = TrajectorySentences(tokenizer, LANGUAGE["binned"], screens, template)
    sentences = ElementSentences(trajectory)
    segments = sentences.segments(step, random.Random(seed))
    assert trajectory.length(segments) == len(sentences.build(step, random.Random(seed)))


@pytest.mark.parametrize("language", LANGUAGE)
@thorough
@given(st.data(), episodes(), st.sampled_from(list(ROWS)), st.booleans())
def test_the_length_of_a_source_and_a_target_is_known_without_features(language, data, episode, number, elements):
    sentences = StepSentences(
        data.draw(st.sampled_from([kinds.byte_level(), kinds.sentencepiece()])),
        LANGUAGE[language],
        history=data.draw(st.sampled_from([0, 1, 8])),
        future=data.draw(st.sampled_from([0, 4])),
        elements=elements,
        past_screens=data.draw(st.integers(0, 1)),
        max_source_tokens=data.draw(st.sampled_from([90, 200, 5000])),
        notes=headed(row(number)),
    )
    number = data.draw(st.integers(0, len(episode) - 1))
    try:
        segments = sentences.segments(without_pixels(episode), number)
    except TooLongError:
        return
    screens = [np.zeros((2, 4), np.float16)] * len(sentences.screen_numbers(number))
    sentence = sentences.encode(segments, screens)
    assert sentences.length(segments) == len(sentence)
    assert supervised_length(segments, sentences) == sentence.supervised
    source = sentences.source_of(episode, number)
    assert sentences.length(source.segments) <= sentences.max_source_tokens


@thorough
@given(texts, texts, st.sampled_from([0.0, 0.1]))
def test_the_length_of_a_chat_is_known_without_its_ids(prompt, answer, prompt_weight):
    tokenizer = with_turns(tiny_text.tokenizer())
    if tokenizer.eos_token in answer:
        return
    sentences = ChatSentences(tokenizer, prompt_weight)
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    sentence, segments = sentences.build(Chat("here", messages)), sentences.segments(Chat("here", messages))
    assert sum(each.mark is not None for each in segments) == 1
    assert supervised_length(segments, sentences) == sentence.supervised
