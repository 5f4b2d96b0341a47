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

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import draw_instructed_walk
from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen, draw_screen
from shipped_weights.phone_vlm_tiny.lessons import Lessons, absent_name, text_to_copy, uniquely_named
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe
from vlm_agent.agents.decoding.greedy import Limits, answer_sentences, most_likely
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import ACTION_NAMES, Action, UiElement
from vlm_agent.evaluation.scoring.measures import wilson
from vlm_agent.evaluation.scoring.strict import strictly_match
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
            element = subject if isinstance(subject, UiElement) and form != "read" else None
            yield Question(task, screen, lessons.question(form, screen, subject), element)


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


_TASKS: tuple[tuple[str, str, Callable[[DrawnScreen, random.Random], Any]], ...] = (
    ("word: name → tap", "find", _element(lambda element: bool(element.text))),
    ("icon: name → tap", "find", _element(lambda element: not element.text)),
    ("goal: name → tap", "find_goal", _element(lambda element: True)),
    ("place → word", "read", _element(lambda element: bool(element.text) and " " not in element.text)),
    ("place → line", "read", _element(lambda element: " " in element.text)),
    ("place → icon", "read", _element(lambda element: not element.text)),
    ("is this switch on", "switch", lambda screen, rng: _one(list(screen.switches.items()), rng)),
    ("which is not here", "absent", _absent),
    ("copy a text", "type", _copy),
    ("goal: copy a text", "type_goal", _copy),
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


def walk_accuracy(agent: VlmAgent, walks: int, seed: int = 0) -> dict[str, dict]:
    """`accuracy_by_task` of the steps of held-out instructed walks, by action type and over all, given the gold
    history.

    A step is correct by the strict score: the same element, the same direction, exactly the same text.
    """
    verdicts: dict[str, list[bool]] = {name: [] for name in (*ACTION_NAMES, "all steps")}
    for number in range(walks):
        walk = draw_instructed_walk(random.Random(f"exam {seed}/{number}"), _SETTINGS)
        for step, answer in zip(walk.steps, agent.answer_episode(walk), strict=True):
            verdict = strictly_match(step.action, answer.action, step.elements)
            verdicts[step.action.name].append(verdict)
            verdicts["all steps"].append(verdict)
    return {f"instructed walk: {name}": _accuracy(one) for name, one in verdicts.items() if one}


def _accuracy(verdicts: Sequence[bool]) -> dict:
    right = sum(verdicts)
    return {
        "questions": len(verdicts),
        "right": right,
        "percent": round(100 * right / len(verdicts), 1),
        "interval": [round(edge, 1) for edge in wilson(right, len(verdicts))],
    }
