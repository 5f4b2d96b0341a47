"""Lessons: what is asked is on the screen, what is learned answers it, and places are written as taps are."""

import random
import re
from dataclasses import replace

import pytest
import tiny

from vlm_agent.datasets.drawn_screens import DrawnScreen
from vlm_agent.episodes import ACTION_NAMES, UiElement
from vlm_agent.sentences import IGNORED, NO_ACTION
from vlm_agent.sentences.lessons import TASKS, Lessons, absentee, told_apart

WORDS = tiny.tokenizer()
LESSONS = Lessons(tiny.sentences(WORDS), items=20)
TEXT = LESSONS.trajectory.text
STEP = tiny.episode().steps[0]
SCREEN = DrawnScreen(STEP, {"Wi-Fi": True})
FORMS = ("\nIs ", "\nNot here of ", "\nType ", "\nList")
"""How every question begins that is not about one element."""

PLACES = {"Wi-Fi": "tap at 1 2", "Clear cart": "tap at 6 5", "ICON_HOME": "tap at 8 7"}


def spans(sentence) -> list[tuple[str, str]]:
    """(what was given since the last answer, what was learned) of each answer."""
    found, given, learned = [], [], []
    for token, label in zip(sentence.input_ids, sentence.labels, strict=True):
        if label == IGNORED:
            given += [token] if token >= 0 else []
            continue
        learned.append(token)
        if token == WORDS.eos_token_id:
            found.append((TEXT(given), TEXT(learned)))
            given, learned = [], []
    assert learned == []
    return found


@pytest.fixture(scope="module")
def asked() -> set[tuple[str, str]]:
    return {pair for seed in range(200) for pair in spans(LESSONS.dense(SCREEN, random.Random(seed)))}


def test_names_are_found_at_their_places_and_places_read_as_their_names(asked):
    for name, place in PLACES.items():
        assert (f"\n{name}=", place) in asked
        assert (f"\n{place}=", name) in asked


def test_a_switch_is_on_or_off(asked):
    assert ("\nIs Wi-Fi on=", "yes") in asked
    off = LESSONS.question("switch", SCREEN, ("Wi-Fi", False))
    assert spans(off) == [("\nIs Wi-Fi on=", "no")]


def test_what_is_not_here_is_one_of_those_named_and_the_only_one_missing(asked):
    questions = [pair for pair in asked if pair[0].startswith("\nNot here of ")]
    assert questions
    for question, answer in questions:
        names = question.removeprefix("\nNot here of ").removesuffix("=").split(", ")
        assert [name for name in names if name not in PLACES] == [answer]


def test_a_text_to_copy_comes_back_as_typed_text(asked):
    questions = [pair for pair in asked if pair[0].startswith("\nType ")]
    assert questions
    for question, answer in questions:
        text = question.removeprefix("\nType ").removesuffix("=")
        assert LESSONS.trajectory.language.parse(answer).text == text


def test_a_list_goes_from_top_to_bottom(asked):
    told = [answer for _, answer in asked if answer.startswith("tap at") and not re.fullmatch(r"tap at \d \d", answer)]
    assert set(told) == {"tap at 1 2Wi-Fi", "tap at 6 5Clear cart", "tap at 8 7ICON_HOME"}


def test_no_more_is_asked_than_items_say():
    few = replace(LESSONS, items=1)
    for seed in range(50):
        questions = [given for given, _ in spans(few.dense(SCREEN, random.Random(seed)))]
        assert sum(bool(given) and not given.startswith(FORMS) for given in questions) <= 1


def test_of_two_with_one_name_neither_is_asked_for_and_both_are_read():
    twins = (
        UiElement((0, 0, 0.2, 0.2), "more"),
        UiElement((0.5, 0, 0.2, 0.2), "more"),
        UiElement((0.8, 0, 0.1, 1), "a"),
    )
    assert [element.name for element in told_apart(twins)] == ["a"]
    screen = DrawnScreen(replace(STEP, elements=twins), {})
    questions = {given for seed in range(60) for given, _ in spans(LESSONS.dense(screen, random.Random(seed)))}
    assert not any(given.startswith("\nmore") for given in questions)
    assert any(given.startswith("\ntap at 1 1") for given in questions)


def test_a_goal_comes_first_and_has_a_screen_for_each_of_its_parts():
    seen = set()
    for seed in range(60):
        sentence, screens = LESSONS.asked_first(lambda: SCREEN, random.Random(seed))
        (first, _), *_ = answers = spans(sentence)
        goal = re.match(r"Goal: (Find|Type) (.*)\n", first.replace("<s>", ""))
        assert goal, first
        if goal[1] == "Find":
            names = goal[2].split(", ")
            assert len(names) == len(screens) == len(sentence.screens) == len(answers)
            assert [answer for _, answer in answers] == [PLACES.get(name, "impossible") for name in names]
            seen |= {PLACES.get(name, "impossible") for name in names}
        kinds = {kind for kind in sentence.kinds if kind != NO_ACTION}
        assert {ACTION_NAMES[kind] for kind in kinds} <= {"tap", "type", "impossible"}
    assert seen == {*PLACES.values(), "impossible"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_asked_alone(task):
    about = {
        "switch": ("Wi-Fi", True),
        "absent": absentee(STEP.elements, random.Random(0)),
        "type": "red lamp",
        "type_goal": "red lamp",
    }.get(task, STEP.elements[0])
    ((given, answer),) = spans(LESSONS.question(task, SCREEN, about))
    place = PLACES["Wi-Fi"]
    asked, said = {
        "find": ("\nWi-Fi=", place),
        "read": (f"\n{place}=", "Wi-Fi"),
        "switch": ("\nIs Wi-Fi on=", "yes"),
        "absent": ("\nNot here of ", None),
        "type": ("\nType red lamp=", 'Input text "red lamp"'),
        "find_goal": ("Goal: Find Wi-Fi\n\nAction: ", place),
        "type_goal": ("Goal: Type red lamp\n\nAction: ", 'Input text "red lamp"'),
    }[task]
    assert given.startswith(asked)
    assert answer == said or (task == "absent" and answer == about[1])


LINE = "Bluetooth " * 40
"""Too long to be asked for, and yet it stands there."""


def test_what_is_missing_stands_in_no_text_of_the_screen():
    texts = [UiElement((0, 0, 0.1, 0.5), text) for text in ("Mail Berlin", "mail", "Settings", "ask: Paris?", LINE)]
    said = {absentee(texts, random.Random(seed))[1] for seed in range(3000)}
    assert len(said) > 150
    assert said.isdisjoint({"Mail", "Berlin", "Settings", "Paris", "Bluetooth"})


def test_a_name_with_a_comma_is_in_no_list_of_names():
    dated = (UiElement((0, 0, 0.1, 0.5), "Monday, 3"), UiElement((0.5, 0, 0.1, 0.5), "red"))
    screen = DrawnScreen(replace(STEP, elements=dated), {})
    for seed in range(40):
        assert "Monday, 3" not in absentee(dated, random.Random(seed))[0]
        sentence, screens = LESSONS.asked_first(lambda: screen, random.Random(seed))
        (given, _), *_ = spans(sentence)
        assert "Find" not in given or len(given.split("\n")[0].split(", ")) == len(screens)
