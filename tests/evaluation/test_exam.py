"""The exam: questions on unseen screens, judged as the screen has it."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
import tiny

from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.datasets.drawn_screens import DrawnScreen, draw_errand
from vlm_agent.episodes import Action
from vlm_agent.evaluation import exam
from vlm_agent.evaluation.exam import TASKS, Answered, Question, drawn_exam, errand_marks, marks, questions_about, sit
from vlm_agent.sentences.lessons import Lessons

WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)
LESSONS = Lessons(SENTENCES)
SCREEN = DrawnScreen(tiny.episode().steps[0], {"Wi-Fi": True})


@pytest.fixture(scope="module")
def agent() -> VlmAgent:
    return VlmAgent(tiny.model(len(WORDS)), WORDS, SENTENCES)


def test_a_screen_is_asked_about_everything_that_it_has():
    assert [question.task for question in questions_about(LESSONS, SCREEN, random.Random(0))] == list(TASKS)


def test_an_exam_is_the_same_every_time_and_another_with_another_seed():
    def ids(seed: int):
        return [question.sentence.input_ids for question in drawn_exam(LESSONS, 3, seed)]

    assert ids(0) == ids(0) != ids(1)


def test_answers_are_those_of_reading_the_question_alone(agent):
    questions = list(drawn_exam(LESSONS, 4))
    together = [answer.said for answer in sit(agent, iter(questions))]
    alone = [next(sit(agent, iter([question]))).said for question in questions]
    assert together == alone


def judged(task: str, said: str) -> Answered:
    (question,) = [one for one in questions_about(LESSONS, SCREEN, random.Random(0)) if one.task == task]
    return exam._judged(SimpleNamespace(sentences=SENTENCES), question, SENTENCES.ids(said))


def test_a_tap_is_right_inside_the_element_and_nowhere_else():
    icon = "icon: name → tap"  # the lower right quarter of the lower half
    assert judged(icon, "tap at 8 7").right
    assert judged(icon, "tap at 9 5").right
    assert not judged(icon, "tap at 6 7").right
    assert not judged(icon, "tap at 8 2").right
    assert not judged(icon, "complete").right


def test_a_text_is_right_when_it_is_the_same():
    assert judged("place → word", "Wi-Fi").right
    assert not judged("place → word", "Wi-fi").right
    assert judged("is this switch on", "yes").right


def test_marks_count_by_task_and_have_intervals():
    def answered(task: str, right: bool) -> Answered:
        return Answered(Question(task, SCREEN, None, None), "", "", None, right)

    told = marks([answered(TASKS[0], True)] * 9 + [answered(TASKS[0], False)] + [answered(TASKS[3], False)])
    assert list(told) == [TASKS[0], TASKS[3]]
    assert told[TASKS[0]] == {"questions": 10, "right": 9, "percent": 90.0, "interval": [59.6, 98.2]}


def test_errands_are_marked_step_by_step_as_the_strict_score_has_it(agent):
    told = errand_marks(agent, 3)
    steps = [step for number in range(3) for step in draw_errand(random.Random(f"exam 0/{number}")).steps]
    assert told["errand: all steps"]["questions"] == len(steps)
    kinds = {name: row["questions"] for name, row in told.items() if name != "errand: all steps"}
    assert kinds == Counter(f"errand: {step.action.name}" for step in steps)

    class Knowing:
        def answer_episode(self, episode):
            return [SimpleNamespace(action=step.action) for step in episode.steps]

    assert {row["percent"] for row in errand_marks(Knowing(), 3).values()} == {100.0}

    class Finished:
        def answer_episode(self, episode):
            return [SimpleNamespace(action=Action.complete()) for _ in episode.steps]

    hasty = errand_marks(Finished(), 3)
    assert hasty.pop("errand: complete")["percent"] == 100
    assert hasty.pop("errand: all steps")["right"] == sum(step.action == Action.complete() for step in steps)
    assert {row["right"] for row in hasty.values()} == {0}
