"""Lessons: questions match their screen, targets answer them, and places are written like taps."""

import random
import re
from dataclasses import replace

import pytest
from helpers import tiny

from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen
from shipped_weights.phone_vlm_tiny.lessons import (
    GOAL_TASKS,
    TASKS,
    Lessons,
    absent_name,
    alike,
    controls,
    uniquely_named,
)
from vlm_agent.episodes import ACTION_NAMES, UiElement
from vlm_agent.sentences import IGNORED, NO_ACTION

WORDS = tiny.tokenizer()
LESSONS = Lessons(tiny.sentences(WORDS), items=20)
TEXT = LESSONS.trajectory.text
STEP = tiny.episode().steps[0]
SCREEN = DrawnScreen(STEP, {"Wi-Fi": True})
FORMS = ("\nIs ", "\nNot here of ", "\nType ", "\nList")
"""Prefixes of the questions that are not about one element."""

PLACES = {"Wi-Fi": "tap at 1 2", "Clear cart": "tap at 6 5", "ICON_HOME": "tap at 8 7"}


def spans(sentence) -> list[tuple[str, str]]:
    """(the text before it, since the last answer; the answer) of each answer."""
    found, before, learned = [], [], []
    for token, label in zip(sentence.input_ids, sentence.labels, strict=True):
        if label == IGNORED:
            before += [token] if token >= 0 else []
            continue
        learned.append(token)
        if token == WORDS.eos_token_id:
            found.append((TEXT(before), TEXT(learned)))
            before, learned = [], []
    assert learned == []
    return found


@pytest.fixture(scope="module")
def asked() -> set[tuple[str, str]]:
    return {pair for seed in range(200) for pair in spans(LESSONS.dense(SCREEN, random.Random(seed)))}


def test_elements_are_asked_by_name_and_by_place(asked):
    for name, place in PLACES.items():
        assert (f"\n{name}=", place) in asked
        assert (f"\n{place}=", name) in asked


def test_a_switch_is_on_or_off(asked):
    assert ("\nIs Wi-Fi on=", "yes") in asked
    off = LESSONS.question("state", SCREEN, ("Wi-Fi", False))
    assert spans(off) == [("\nIs Wi-Fi on=", "no")]


def test_exactly_one_of_the_names_is_absent(asked):
    questions = [pair for pair in asked if pair[0].startswith("\nNot here of ")]
    assert questions
    for question, answer in questions:
        names = question.removeprefix("\nNot here of ").removesuffix("=").split(", ")
        assert [name for name in names if name not in PLACES] == [answer]


def test_a_text_to_copy_is_answered_by_typing_it(asked):
    questions = [pair for pair in asked if pair[0].startswith("\nType ")]
    assert questions
    for question, answer in questions:
        text = question.removeprefix("\nType ").removesuffix("=")
        assert LESSONS.trajectory.language.decode(answer).text == text


def test_a_list_goes_from_top_to_bottom(asked):
    lists = [answer for _, answer in asked if answer.startswith("tap at") and not re.fullmatch(r"tap at \d \d", answer)]
    assert set(lists) == {"tap at 1 2Wi-Fi", "tap at 6 5Clear cart", "tap at 8 7ICON_HOME"}


def test_items_limits_the_questions_about_elements():
    few = replace(LESSONS, items=1)
    for seed in range(50):
        questions = [question for question, _ in spans(few.dense(SCREEN, random.Random(seed)))]
        assert sum(bool(question) and not question.startswith(FORMS) for question in questions) <= 1


def test_elements_with_a_shared_name_are_asked_by_place_only():
    twins = (
        UiElement((0, 0, 0.2, 0.2), "more"),
        UiElement((0.5, 0, 0.2, 0.2), "more"),
        UiElement((0.8, 0, 0.1, 1), "a"),
    )
    assert [element.name for element in uniquely_named(twins)] == ["a"]
    screen = DrawnScreen(replace(STEP, elements=twins), {})
    questions = {question for seed in range(60) for question, _ in spans(LESSONS.dense(screen, random.Random(seed)))}
    assert not any(question.startswith("\nmore") for question in questions)
    assert any(question.startswith("\ntap at 1 1") for question in questions)


def test_a_goal_comes_first_and_has_a_screen_for_each_of_its_parts():
    seen = set()
    for seed in range(60):
        sentence, screens = LESSONS.goal_first(lambda: SCREEN, random.Random(seed))
        (first, _), *_ = answers = spans(sentence)
        goal = re.match(r"Goal: (Find|Type|In|On:) (.*)\n", first.replace("<s>", ""))
        assert goal, first
        kinds = {kind for kind in sentence.kinds if kind != NO_ACTION}
        if goal[1] == "On:":
            assert [answer for _, answer in answers] == ["complete"]
            continue
        if goal[1] == "Find":
            names = goal[2].split(", ")
            assert len(names) == len(screens) == len(sentence.screens) == len(answers)
            assert [answer for _, answer in answers] == [PLACES.get(name, "impossible") for name in names]
            seen |= {PLACES.get(name, "impossible") for name in names}
        assert {ACTION_NAMES[kind] for kind in kinds} <= {"tap", "type", "impossible"}
    assert seen == {*PLACES.values(), "impossible"}


@pytest.mark.parametrize("task", [*TASKS, *GOAL_TASKS])
def test_every_task_has_single_questions(task):
    about = {
        "state": ("Wi-Fi", True),
        "state_goal": ("Wi-Fi", False),
        "beyond": {"left", "up"},
        "app": "Settings",
        "alike": STEP.elements[:2],
        "alike_goal": STEP.elements[:2],
        "type_in_goal": ("Wi-Fi", "red lamp"),
        "absent": absent_name(STEP.elements, random.Random(0)),
        "type": "red lamp",
        "type_goal": "red lamp",
    }.get(task, STEP.elements[0])
    ((question, answer),) = spans(LESSONS.question(task, SCREEN, about))
    place = PLACES["Wi-Fi"]
    expected_question, expected = {
        "find": ("\nWi-Fi=", place),
        "read": (f"\n{place}=", "Wi-Fi"),
        "state": ("\nIs Wi-Fi on=", "yes"),
        "state_goal": ("Goal: On: Wi-Fi\n\nAction: ", place),
        "beyond": ("\nMore=", "up, left"),
        "app": ("\nApp=", "Settings"),
        "alike": (f"\nWi-Fi beside {STEP.elements[1].name}=", place),
        "alike_goal": (f"Goal: Find Wi-Fi beside {STEP.elements[1].name}\n\nAction: ", place),
        "type_in_goal": ("Goal: In Wi-Fi type red lamp\n\nAction: ", 'Input text "red lamp"'),
        "absent": ("\nNot here of ", None),
        "type": ("\nType red lamp=", 'Input text "red lamp"'),
        "find_goal": ("Goal: Find Wi-Fi\n\nAction: ", place),
        "type_goal": ("Goal: Type red lamp\n\nAction: ", 'Input text "red lamp"'),
    }[task]
    assert question.startswith(expected_question)
    assert answer == expected or (task == "absent" and answer == about[1])


LINE = "Bluetooth " * 40
"""A text that is too long to be asked for, but is on the screen."""


def test_no_goal_is_impossible_where_the_screen_scrolls():
    screen = replace(SCREEN, beyond=frozenset({"up"}))
    answers = [
        answer for seed in range(300) for _, answer in spans(LESSONS.goal_first(lambda: screen, random.Random(seed))[0])
    ]
    assert "impossible" not in answers
    assert set(PLACES.values()) <= set(answers)


def test_an_absent_name_is_in_no_text_of_the_screen():
    texts = [UiElement((0, 0, 0.1, 0.5), text) for text in ("Mail Berlin", "mail", "Settings", "ask: Paris?", LINE)]
    absent = {absent_name(texts, random.Random(seed))[1] for seed in range(3000)}
    assert len(absent) > 150
    assert absent.isdisjoint({"Mail", "Berlin", "Settings", "Paris", "Bluetooth"})


def test_names_with_commas_are_not_listed():
    dated = (UiElement((0, 0, 0.1, 0.5), "Monday, 3"), UiElement((0.5, 0, 0.1, 0.5), "red"))
    screen = DrawnScreen(replace(STEP, elements=dated), {})
    for seed in range(40):
        assert "Monday, 3" not in absent_name(dated, random.Random(seed))[0]
        sentence, screens = LESSONS.goal_first(lambda: screen, random.Random(seed))
        (prompt, _), *_ = spans(sentence)
        assert not prompt.removeprefix("<s>").startswith("Goal: Find") or len(prompt.split("\n")[0].split(", ")) == len(
            screens
        )


ROWS = tuple(
    UiElement((top, left, 0.04, 0.2), name)
    for top, left, name in (
        (0.1, 0.1, "Tea"),
        (0.11, 0.7, "Add"),
        (0.3, 0.1, "Milk"),
        (0.3, 0.7, "Add"),
        (0.5, 0.1, "Rice"),
        (0.5, 0.4, "Add"),
        (0.5, 0.7, "Add"),
    )
)
MARK = UiElement((0.8, 0.8, 0.05, 0.1), "yes")


def test_of_equal_names_the_one_beside_a_unique_name_is_asked_for():
    assert alike(ROWS) == [(ROWS[1], ROWS[0]), (ROWS[3], ROWS[2])], "two are beside Rice"
    assert alike(ROWS[:2]) == []


def test_what_a_screen_lacks_is_not_asked_and_the_rest_with_its_probability():
    plain = {question for seed in range(60) for question, _ in spans(LESSONS.dense(SCREEN, random.Random(seed)))}
    assert not any(question.startswith(("\nMore", "\nApp")) or " beside " in question for question in plain)
    full = DrawnScreen(replace(STEP, elements=ROWS), {}, {"Tea": True, "Milk": False}, frozenset(), "Shop", (MARK,))
    asked = {pair for seed in range(60) for pair in spans(LESSONS.dense(full, random.Random(seed)))}
    assert {("\nMore=", "none"), ("\nApp=", "Shop"), ("\nIs Tea on=", "yes"), ("\nIs Milk on=", "no")} <= asked
    assert (f"\n{LESSONS.place(MARK)}=", "yes") in asked
    assert any(question == "\nAdd beside Milk=" for question, _ in asked)


def test_on_and_off_are_asked_in_turn_where_a_screen_has_both():
    tabs = {f"tab {number}": number == 0 for number in range(5)}
    screen = DrawnScreen(STEP, {}, tabs)
    for seed in range(20):
        answers = [
            answer for question, answer in spans(LESSONS.dense(screen, random.Random(seed))) if " on=" in question
        ]
        assert len(answers) < 2 or set(answers) == {"yes", "no"}


def test_a_control_belongs_to_the_label_to_its_left():
    labels = [UiElement((0.1, left, 0.04, 0.1), name) for left, name in ((0.1, "Tea"), (0.5, "Milk"))]
    marks = tuple(UiElement((0.11, left, 0.02, 0.05), name) for left, name in ((0.4, "yes"), (0.9, "no"), (0.02, "no")))
    screen = DrawnScreen(replace(STEP, elements=tuple(labels)), {"Tea": True, "Milk": False}, marks=marks)
    assert [(label.name, control.box) for control, label in controls(screen)] == [
        ("Tea", marks[0].box),
        ("Milk", marks[1].box),
    ]
    questions = {question for seed in range(30) for question, _ in spans(LESSONS.dense(screen, random.Random(seed)))}
    assert {"\nswitch beside Tea=", "\nswitch beside Milk="} <= questions
