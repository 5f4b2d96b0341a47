"""Swipes say what they are to bring while a model learns, and never in what it has behind it when it acts."""

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
        (steps((UP, THERE), (TAP, THERE)), [None, None]),  # it shows already
        (steps((UP, HERE), (Action.press("back"), HERE), (TAP, THERE)), [None, None, None]),
        (steps((UP, HERE), (TAP, HERE)), [None, None]),  # the tap is on nothing
        (steps((UP, HERE), (Action.complete(), THERE)), [None, None]),
        (steps((TAP, THERE), (UP, HERE), (TAP, THERE), (UP, HERE)), [None, "There", None, None]),
        ((), []),
    ],
)
def test_what_is_sought_is_what_the_next_tap_is_on_if_it_does_not_show_yet(walk, names):
    assert swipe_targets(walk) == names


@pytest.fixture(params=range(12))
def episode(request):
    walk = steps((UP, HERE), (UP, HERE), (TAP, THERE), (UP, HERE), (TAP, THERE))
    return replace(tiny.episode(), goal=f"open settings {request.param}", steps=walk)


def actions(sentence) -> list[str]:
    """What stands behind each cue, learned or not."""
    said = SENTENCES.tokenizer.decode([token for token in sentence.input_ids if token >= 0])
    return [part.partition("</s>")[0].strip() for part in said.split("Action:")[1:]]


def learned(sentence) -> str:
    return SENTENCES.tokenizer.decode([label for label in sentence.labels if label != IGNORED])


def test_an_agents_history_holds_no_names_of_what_was_sought(episode):
    plain = replace(SENTENCES, language=NamedLanguage(tiny.BINS)).build(episode)
    assert SENTENCES.build(episode).input_ids == plain.input_ids
    assert SENTENCES.build(episode).labels == plain.labels


def test_to_learn_some_swipes_are_named_and_of_the_others_the_choice_is_not_learned(episode):
    sentence = SENTENCES.build(episode, with_swipe_targets=True)
    swipe, named = LANGUAGE.encode(UP), LANGUAGE.encode(UP, None, "There")
    assert {text for text in actions(sentence) if "swipe" in text} <= {swipe, named}
    assert learned(sentence).count("swipe from") == actions(sentence).count(named)
    assert learned(sentence).count("to 3 5") == 3  # where a swipe goes is always learned


def test_both_kinds_are_met():
    walk = steps((UP, HERE), (TAP, THERE))
    texts = {
        actions(SENTENCES.build(replace(tiny.episode(), goal=str(number), steps=walk), with_swipe_targets=True))[0]
        for number in range(20)
    }
    assert texts == {LANGUAGE.encode(UP), LANGUAGE.encode(UP, None, "There")}


def test_actions_that_are_only_read_are_as_in_a_history(episode):
    sentence = SENTENCES.build(episode, first_supervised_step=len(episode), with_swipe_targets=True)
    assert sentence.input_ids == SENTENCES.build(episode).input_ids
    assert sentence.supervised == 0
