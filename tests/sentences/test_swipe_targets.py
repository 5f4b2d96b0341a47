"""Swipe targets: supervised in training, never part of the history of an agent."""

from dataclasses import replace

import pytest
from helpers import tiny

from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.episodes import Action, Step, UiElement
from vlm_agent.sentences import IGNORED
from vlm_agent.sentences.trajectory import swipe_targets

HERE, THERE = UiElement((0.1, 0.1, 0.2, 0.2), "Here"), UiElement((0.4, 0.4, 0.2, 0.2), "There")
UP, TAP = Action.swipe((0.8, 0.5), (0.3, 0.5)), Action.tap(0.5, 0.5)
LANGUAGE = NamedLanguage(tiny.BINS, name_swipe_targets=True)
SENTENCES = replace(tiny.sentences(tiny.tokenizer()), language=LANGUAGE)


def steps(*pairs: tuple[Action, UiElement]) -> tuple[Step, ...]:
    return tuple(
        replace(step, action=action, elements=(element,))
        for step, (action, element) in zip(tiny.episode(actions=(UP,) * len(pairs)).steps, pairs, strict=True)
    )


@pytest.mark.parametrize(
    ("walk", "names"),
    [
        (steps((UP, HERE), (UP, HERE), (TAP, THERE)), ["There", "There", None]),
        (steps((UP, THERE), (TAP, THERE)), [None, None]),  # already visible
        (steps((UP, HERE), (Action.press("back"), HERE), (TAP, THERE)), [None, None, None]),
        (steps((UP, HERE), (TAP, HERE)), [None, None]),  # the tap hits no element
        (steps((UP, HERE), (Action.complete(), THERE)), [None, None]),
        (steps((TAP, THERE), (UP, HERE), (TAP, THERE), (UP, HERE)), [None, "There", None, None]),
        ((), []),
    ],
)
def test_the_target_is_the_element_of_the_next_tap_unless_it_is_already_visible(walk, names):
    assert swipe_targets(walk) == names


@pytest.fixture(params=range(12))
def episode(request):
    walk = steps((UP, HERE), (UP, HERE), (TAP, THERE), (UP, HERE), (TAP, THERE))
    return replace(tiny.episode(), goal=f"open settings {request.param}", steps=walk)


def actions(sentence) -> list[str]:
    """The text after each cue, supervised or not."""
    text = SENTENCES.tokenizer.decode([token for token in sentence.input_ids if token >= 0])
    return [part.partition("</s>")[0].strip() for part in text.split("Action:")[1:]]


def supervised_text(sentence) -> str:
    return SENTENCES.tokenizer.decode([label for label in sentence.labels if label != IGNORED])


def test_a_history_contains_no_swipe_targets(episode):
    plain = replace(SENTENCES, language=NamedLanguage(tiny.BINS)).build(episode)
    assert SENTENCES.build(episode).input_ids == plain.input_ids
    assert SENTENCES.build(episode).labels == plain.labels


def test_in_training_a_swipe_names_its_target_or_its_first_token_has_no_loss(episode):
    sentence = SENTENCES.build(episode, with_swipe_targets=True)
    swipe, named = LANGUAGE.encode(UP), LANGUAGE.encode(UP, None, "There")
    assert {text for text in actions(sentence) if "swipe" in text} <= {swipe, named}
    assert supervised_text(sentence).count("swipe from") == actions(sentence).count(named)
    assert supervised_text(sentence).count("to 3 5") == 3  # the end of every swipe is supervised


def test_swipes_with_and_without_a_target_occur():
    walk = steps((UP, HERE), (TAP, THERE))
    texts = {
        actions(SENTENCES.build(replace(tiny.episode(), id=str(number), steps=walk), with_swipe_targets=True))[0]
        for number in range(20)
    }
    assert texts == {LANGUAGE.encode(UP), LANGUAGE.encode(UP, None, "There")}


def test_unsupervised_actions_are_written_as_in_a_history(episode):
    sentence = SENTENCES.build(episode, first_supervised_step=len(episode), with_swipe_targets=True)
    assert sentence.input_ids == SENTENCES.build(episode).input_ids
    assert sentence.supervised == 0
