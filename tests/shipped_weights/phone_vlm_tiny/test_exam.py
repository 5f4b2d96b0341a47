"""Questions about held-out screens, judged against the screen."""

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers import tiny
from helpers.screens import exam
from helpers.screens.exam import (
    TASKS,
    Question,
    QuestionResult,
    accuracy_by_task,
    answer_questions,
    held_out_questions,
    questions_about,
    walk_accuracy,
)

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import draw_instructed_walk
from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen
from shipped_weights.phone_vlm_tiny.lessons import Lessons
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Action, UiElement
from vlm_agent.models.run_layout import base_folder

WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)
LESSONS = Lessons(SENTENCES)
STEP = tiny.episode().steps[0]
TWINS = (UiElement((0.2, 0.7, 0.05, 0.1), "Add"), UiElement((0.6, 0.7, 0.05, 0.1), "Add"))
WIFI = STEP.elements[0]
MARK = UiElement((WIFI.box[0], 0.8, WIFI.box[2], 0.1), "yes")
SCREEN = DrawnScreen(
    replace(STEP, elements=(*STEP.elements, *TWINS)),
    {"Wi-Fi": True},
    {"Wi-Fi": False},
    frozenset({"up"}),
    "Shop",
    (MARK,),
)


@pytest.fixture(scope="module")
def agent() -> VlmAgent:
    return VlmAgent(tiny.model(len(WORDS)), WORDS, SENTENCES)


def test_a_screen_has_a_question_of_every_task_that_suits_it():
    assert [question.task for question in questions_about(LESSONS, SCREEN, random.Random(0))] == list(TASKS)


def test_a_seed_determines_the_questions():
    def ids(seed: int):
        return [question.sentence.input_ids for question in held_out_questions(LESSONS, 3, seed)]

    assert ids(0) == ids(0) != ids(1)


def test_batched_answers_equal_those_of_single_questions(agent):
    questions = list(held_out_questions(LESSONS, 4))
    together = [answer.text for answer in answer_questions(agent, iter(questions))]
    alone = [next(answer_questions(agent, iter([question]))).text for question in questions]
    assert together == alone


def test_the_embedded_base_finds_names_reads_and_copies_on_held_out_screens():
    """A floor: any slip in preprocessing, such as a wrong normalisation of pixels, falls below it."""
    agent = VlmAgent.from_run(base_folder("phone_vlm_tiny"))
    answers = answer_questions(agent, held_out_questions(Lessons(agent.sentences), 16))
    right = {task: figures["right"] for task, figures in accuracy_by_task(list(answers)).items()}
    floors = {"icon: name → tap": 14, "place → icon": 10, "word: name → tap": 9, "which is not here": 15}
    floors |= {"goal: name → tap": 10, "place → word": 10, "copy a text": 14, "goal: copy a text": 14}
    assert {task: right[task] for task, floor in floors.items() if right[task] < floor} == {}


def judged(task: str, text: str) -> QuestionResult:
    (question,) = [one for one in questions_about(LESSONS, SCREEN, random.Random(0)) if one.task == task]
    return exam.judge(SimpleNamespace(sentences=SENTENCES), question, SENTENCES.ids(text))


def test_a_tap_is_correct_only_inside_the_element():
    icon = "icon: name → tap"  # its box: the lower right quarter of the screen's lower half
    assert judged(icon, "tap at 8 7").correct
    assert judged(icon, "tap at 9 5").correct
    assert not judged(icon, "tap at 6 7").correct
    assert not judged(icon, "tap at 8 2").correct
    assert not judged(icon, "complete").correct


def test_a_text_is_correct_when_it_is_equal():
    assert judged("place → word", "Wi-Fi").correct
    assert not judged("place → word", "Wi-fi").correct
    assert judged("is this switch on", "yes").correct


def test_accuracy_is_counted_by_task_with_intervals():
    def answered(task: str, right: bool) -> QuestionResult:
        return QuestionResult(Question(task, SCREEN, None, None), "", "", None, right)

    figures = accuracy_by_task(
        [answered(TASKS[0], True)] * 9 + [answered(TASKS[0], False)] + [answered(TASKS[3], False)]
    )
    assert list(figures) == [TASKS[0], TASKS[3]]
    assert figures[TASKS[0]] == {"questions": 10, "right": 9, "percent": 90.0, "interval": [59.6, 98.2]}


def test_walk_accuracy_is_the_strict_score_by_action_type(agent):
    figures = walk_accuracy(agent, 3)
    steps = [
        step
        for number in range(3)
        for step in draw_instructed_walk(random.Random(f"exam 0/{number}"), DrawnRecipe()).steps
    ]
    assert figures["instructed walk: all steps"]["questions"] == len(steps)
    assert figures["checked walk: all steps"]["questions"] == 3, "the last step of each"
    assert figures["seek walk: complete"]["questions"] == 3
    kinds = {name: row["questions"] for name, row in figures.items() if name.startswith("instructed")}
    del kinds["instructed walk: all steps"]
    assert kinds == Counter(f"instructed walk: {step.action.name}" for step in steps)

    class Knowing:
        def answer_episodes(self, episodes):
            return [[SimpleNamespace(action=step.action) for step in episode.steps] for episode in episodes]

    assert {row["percent"] for row in walk_accuracy(Knowing(), 3).values()} == {100.0}

    class Finished:
        def answer_episodes(self, episodes):
            return [[SimpleNamespace(action=Action.complete()) for _ in episode.steps] for episode in episodes]

    hasty = {name: row for name, row in walk_accuracy(Finished(), 3).items() if name.startswith("instructed")}
    assert hasty.pop("instructed walk: complete")["percent"] == 100
    assert hasty.pop("instructed walk: all steps")["right"] == sum(step.action == Action.complete() for step in steps)
    assert {row["right"] for row in hasty.values()} == {0}
