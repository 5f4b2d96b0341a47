"""Accuracy of a pretrained model on single questions about held-out drawn screens, one question a sentence.

Decoding is greedy. A tap is correct inside the box of the element in question; any other answer is correct when it
equals the expected text, character for character.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from helpers.evaluation.strict_rule import strictly_match

from shipped_weights.phone_vlm_tiny.drawn.exploration_walk import draw_seek_walk
from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import draw_checked_walk, draw_instructed_walk
from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen, draw_screen
from shipped_weights.phone_vlm_tiny.lessons import Lessons, absent_name, alike, controls, text_to_copy, uniquely_named
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe
from vlm_agent.agents.decoding.greedy import Limits, answer_sentences, most_likely
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, UiElement
from vlm_agent.evaluation.scoring.measures import wilson
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import nameable

BATCH = 16
_LONGEST_ANSWER = 64
_SETTINGS = DrawnRecipe()
"""Questions come from the default curriculum, whatever the run trained on, so that figures can be compared."""


@dataclass(frozen=True)
class Question:
    """`task`: its name in reports. `element`: the one to tap, None where the answer is not a tap."""

    task: str
    screen: DrawnScreen
    sentence: Sentence
    element: UiElement | None


@dataclass(frozen=True)
class QuestionResult:
    """`text`: the model's answer; `expected`: the correct one; `action`: `text` decoded, None if it is no action."""

    question: Question
    text: str
    expected: str
    action: Action | None
    correct: bool


def held_out_questions(lessons: Lessons, screens: int, seed: int = 0) -> Iterator[Question]:
    """Up to one question of each task about each drawn screen. The seeds are strings, so no run trains on them."""
    for number in range(screens):
        rng = random.Random(f"exam {seed}/{number}")
        yield from questions_about(lessons, draw_screen(rng, _SETTINGS), rng)


def questions_about(lessons: Lessons, screen: DrawnScreen, rng: random.Random) -> Iterator[Question]:
    """One question of each task for which the screen has a subject."""
    for task, form, choose in _TASKS:
        subject = choose(screen, rng)
        if subject is not None:
            element = _tapped(form, screen, subject)
            yield Question(task, screen, lessons.question(form, screen, subject), element)


def _tapped(form: str, screen: DrawnScreen, subject: Any) -> UiElement | None:
    """The element whose tap is the answer."""
    if form in ("find", "find_goal"):
        return subject
    if form in ("alike", "alike_goal"):
        return subject[0]
    if form == "state_goal" and not subject[1]:
        return next(element for element in screen.elements if element.name == subject[0])
    return None


def _one(candidates: Sequence, rng: random.Random) -> Any:
    return rng.choice(list(candidates)) if candidates else None


def _element(suits: Callable[[UiElement], bool]) -> Callable[[DrawnScreen, random.Random], UiElement | None]:
    def choose(screen: DrawnScreen, rng: random.Random) -> UiElement | None:
        return _one([element for element in uniquely_named(nameable(screen.elements)) if suits(element)], rng)

    return choose


def _absent(screen: DrawnScreen, rng: random.Random) -> tuple[list[str], str] | None:
    return absent_name(screen.elements, rng) if nameable(screen.elements) else None


def _copy(screen: DrawnScreen, rng: random.Random) -> str:
    return text_to_copy(rng, _SETTINGS.words)


def _alike(screen: DrawnScreen, rng: random.Random) -> tuple[UiElement, UiElement] | None:
    return _one(alike(screen.elements), rng)


def _state(states: Callable[[DrawnScreen], dict[str, bool]]) -> Callable[[DrawnScreen, random.Random], Any]:
    """A state is drawn first, and then one of the labels in it, because few of many tabs are selected."""

    def choose(screen: DrawnScreen, rng: random.Random) -> tuple[str, bool] | None:
        on, pairs = rng.random() < 0.5, list(states(screen).items())
        return _one([pair for pair in pairs if pair[1] == on] or pairs, rng)

    return choose


def _text_in_field(screen: DrawnScreen, rng: random.Random) -> tuple[str, str] | None:
    element = _one(nameable(screen.elements), rng)
    return None if element is None else (element.name, _copy(screen, rng))


_TASKS: tuple[tuple[str, str, Callable[[DrawnScreen, random.Random], Any]], ...] = (
    ("word: name → tap", "find", _element(lambda element: bool(element.text))),
    ("icon: name → tap", "find", _element(lambda element: not element.text)),
    ("goal: name → tap", "find_goal", _element(lambda element: True)),
    ("place → word", "read", _element(lambda element: bool(element.text) and " " not in element.text)),
    ("place → line", "read", _element(lambda element: " " in element.text)),
    ("place → icon", "read", _element(lambda element: not element.text)),
    ("place → state", "read", lambda screen, rng: _one(screen.marks, rng)),
    ("which of two alike", "alike", _alike),
    ("goal: which of two alike", "alike_goal", _alike),
    ("switch: label → tap", "alike", lambda screen, rng: _one(controls(screen), rng)),
    ("is this switch on", "state", _state(lambda screen: screen.switches)),
    ("is this tab selected", "state", _state(lambda screen: screen.tabs)),
    ("goal: done, or tap", "state_goal", _state(lambda screen: screen.switches | screen.tabs)),
    ("ways to scroll", "beyond", lambda screen, rng: screen.beyond),
    ("which app", "app", lambda screen, rng: screen.app or None),
    ("which is not here", "absent", _absent),
    ("copy a text", "type", _copy),
    ("goal: copy a text", "type_goal", _copy),
    ("goal: copy a text for a field", "type_in_goal", _text_in_field),
)
"""(name in reports, form in `Lessons`, how the subject is chosen)."""

TASKS = tuple(name for name, _, _ in _TASKS)


def answer_questions(agent: VlmAgent, questions: Iterator[Question]) -> Iterator[QuestionResult]:
    """The agent's greedy answers in order, decoded in batches."""
    limits = Limits(agent.tokenizer.eos_token_id, _LONGEST_ANSWER)
    for _, numbered in groupby(enumerate(questions), key=lambda pair: pair[0] // BATCH):
        batch = [question for _, question in numbered]
        sentences = [question.sentence for question in batch]
        with torch.inference_mode():
            answers = answer_sentences(agent.decoder, sentences, limits, most_likely)
        for question, (answer,) in zip(batch, answers, strict=True):
            yield judge(agent, question, answer.ids)


def judge(agent: VlmAgent, question: Question, ids: list[int]) -> QuestionResult:
    """Whether the answer with these token ids is correct."""
    sentences = agent.sentences
    text = sentences.text(ids)
    expected = sentences.text([label for label in question.sentence.labels if label >= 0])
    action = sentences.language.decode(text)
    if question.element is None:
        return QuestionResult(question, text, expected, action, text == expected)
    inside = action is not None and action.is_tap and question.element.contains(action.touch_yx)
    return QuestionResult(question, text, expected, action, inside)


def accuracy_by_task(results: Sequence[QuestionResult]) -> dict[str, dict]:
    """{task: {questions, right, percent, interval}}, the interval Wilson's 95 %, in percent."""
    by_task = {task: [result.correct for result in results if result.question.task == task] for task in TASKS}
    return {task: _accuracy(verdicts) for task, verdicts in by_task.items() if verdicts}


_WALKS: dict[str, tuple[Callable[[random.Random, DrawnRecipe], Episode], bool]] = {
    "instructed walk": (draw_instructed_walk, False),
    "seek walk": (draw_seek_walk, False),
    "checked walk": (draw_checked_walk, True),
}
"""Kind of walk → (how it is drawn, whether its last step alone is judged)."""


def walk_accuracy(agent: VlmAgent, walks: int, seed: int = 0) -> dict[str, dict]:
    """`accuracy_by_task` of the steps of held-out walks, by kind of walk and action type and over all, given the gold
    history.

    A step is correct by the strict score: the same element, the same direction, exactly the same text.
    """
    verdicts: dict[str, list[bool]] = {}
    for kind, (draw, is_checked) in _WALKS.items():
        names = [f"{kind}: {name}" for name in (*ACTION_NAMES, "all steps")]
        verdicts |= {name: [] for name in names}
        for number in range(walks):
            walk = draw(random.Random(f"exam {seed}/{number}"), _SETTINGS)
            pairs = list(zip(walk.steps, agent.answer_episodes([walk])[0], strict=True))
            for step, answer in pairs[-1:] if is_checked else pairs:
                verdict = strictly_match(step.action, answer.action, step.elements)
                verdicts[f"{kind}: {step.action.name}"].append(verdict)
                verdicts[f"{kind}: all steps"].append(verdict)
    return {name: _accuracy(one) for name, one in verdicts.items() if one}


def _accuracy(verdicts: Sequence[bool]) -> dict:
    right = sum(verdicts)
    return {
        "questions": len(verdicts),
        "right": right,
        "percent": round(100 * right / len(verdicts), 1),
        "interval": [round(edge, 1) for edge in wilson(right, len(verdicts))],
    }
