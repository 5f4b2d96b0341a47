"""What a model has learned from lessons, asked on screens that no lesson was given on: one question a sentence.

Decoding is greedy. A tap is right inside the box of the element that was asked for; any other answer when it is the
same text, character for character.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from vlm_agent.agents.greedy import Limits, answer_sentences, most_likely
from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.datasets.drawn_screens import DrawnScreen, draw_errand, draw_screen
from vlm_agent.episodes import ACTION_NAMES, Action, UiElement
from vlm_agent.evaluation.shares import wilson
from vlm_agent.evaluation.strict import strictly_match
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import nameable
from vlm_agent.sentences.lessons import Lessons, absentee, text_to_copy, told_apart

AT_ONCE = 16
_LONGEST_ANSWER = 64


@dataclass(frozen=True)
class Question:
    """`task` as it is reported, `element` the one asked for (None where the answer is no tap)."""

    task: str
    screen: DrawnScreen
    sentence: Sentence
    element: UiElement | None


@dataclass(frozen=True)
class Answered:
    """`said` as the model said it; `wanted` what would have been right; `action` what `said` reads as, if anything."""

    question: Question
    said: str
    wanted: str
    action: Action | None
    right: bool


def drawn_exam(lessons: Lessons, screens: int, seed: int = 0) -> Iterator[Question]:
    """Every question that suits each of so many drawn screens, one a task; none of them is in any run's lessons."""
    for number in range(screens):
        rng = random.Random(f"exam {seed}/{number}")  # noqa: S311 (no secret)
        yield from questions_about(lessons, draw_screen(rng), rng)


def questions_about(lessons: Lessons, screen: DrawnScreen, rng: random.Random) -> Iterator[Question]:
    """One question of each task that the screen has an object for."""
    for task, form, choose in _TASKS:
        about = choose(screen, rng)
        if about is not None:
            element = about if isinstance(about, UiElement) and form != "read" else None
            yield Question(task, screen, lessons.question(form, screen, about), element)


def _one(elements: Sequence, rng: random.Random):
    return rng.choice(list(elements)) if elements else None


def _element(suits: Callable[[UiElement], bool]):
    def choose(screen: DrawnScreen, rng: random.Random) -> UiElement | None:
        return _one([element for element in told_apart(nameable(screen.step.elements)) if suits(element)], rng)

    return choose


def _absentee(screen: DrawnScreen, rng: random.Random):
    elements = screen.step.elements
    return absentee(elements, rng) if nameable(elements) else None


_TASKS = (
    ("word: name → tap", "find", _element(lambda element: bool(element.text))),
    ("icon: name → tap", "find", _element(lambda element: not element.text)),
    ("goal: name → tap", "find_goal", _element(lambda element: True)),
    ("place → word", "read", _element(lambda element: bool(element.text) and " " not in element.text)),
    ("place → line", "read", _element(lambda element: " " in element.text)),
    ("place → icon", "read", _element(lambda element: not element.text)),
    ("is this switch on", "switch", lambda screen, rng: _one(list(screen.switches.items()), rng)),
    ("which is not here", "absent", _absentee),
    ("copy a text", "type", lambda screen, rng: text_to_copy(rng)),
    ("goal: copy a text", "type_goal", lambda screen, rng: text_to_copy(rng)),
)
"""(its name in reports, its form in `Lessons`, what it is asked about)."""

TASKS = tuple(name for name, _, _ in _TASKS)


def sit(agent: VlmAgent, questions: Iterator[Question]) -> Iterator[Answered]:
    """The agent's greedy answers, in order, a batch at a time."""
    limits = Limits(agent.tokenizer.eos_token_id, _LONGEST_ANSWER)
    numbered = enumerate(questions)
    for _, batch in groupby(numbered, key=lambda pair: pair[0] // AT_ONCE):
        asked = [question for _, question in batch]
        sentences = [question.sentence for question in asked]
        with torch.inference_mode():
            answers = answer_sentences(agent.reader, sentences, limits, [most_likely])[0]
        for question, (said,) in zip(asked, answers, strict=True):
            yield _judged(agent, question, said.ids)


def _judged(agent: VlmAgent, question: Question, ids: list[int]) -> Answered:
    sentences = agent.sentences
    said = sentences.text(ids)
    wanted = sentences.text([label for label in question.sentence.labels if label >= 0])
    action = sentences.language.parse(said)
    if question.element is None:
        return Answered(question, said, wanted, action, said == wanted)
    inside = action is not None and action.is_tap and question.element.contains(action.touch_yx)
    return Answered(question, said, wanted, action, inside)


def marks(answers: Sequence[Answered]) -> dict[str, dict]:
    """{task: {questions, right, percent, interval}}, the interval Wilson's 95 %, in percent."""
    told = {}
    for task in TASKS:
        mine = [answer.right for answer in answers if answer.question.task == task]
        if mine:
            told[task] = _mark(mine)
    return told


def errand_marks(agent: VlmAgent, errands: int, seed: int = 0) -> dict[str, dict]:
    """`marks` of the steps of so many errands that no lesson told, by kind of action and in all, the history given.

    A step is right as the strict score has it: the same element, the same direction, exactly the same text.
    """
    right: dict[str, list[bool]] = {name: [] for name in (*ACTION_NAMES, "all steps")}
    for number in range(errands):
        errand = draw_errand(random.Random(f"exam {seed}/{number}"))  # noqa: S311 (no secret)
        for step, answer in zip(errand.steps, agent.answer_episode(errand), strict=True):
            verdict = strictly_match(step.action, answer.action, step.elements)
            right[step.action.name].append(verdict)
            right["all steps"].append(verdict)
    return {f"errand: {name}": _mark(mine) for name, mine in right.items() if mine}


def _mark(verdicts: Sequence[bool]) -> dict:
    right = sum(verdicts)
    return {
        "questions": len(verdicts),
        "right": right,
        "percent": round(100 * right / len(verdicts), 1),
        "interval": [round(edge, 1) for edge in wilson(right, len(verdicts))],
    }
