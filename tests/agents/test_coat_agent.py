"""The prompting agent: what each mode shows to the model."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.agents.coat_steps import CALL, PLAIN, WITH_TEXTS, agent, asked, pictures_of, text_of

from vlm_agent.agents import Answer, Turn, demonstrated
from vlm_agent.agents.coat.elements import in_rows
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.episodes import Action, Screen, UiElement, recorded_screen
from vlm_agent.texts.phone import result_text, screen_text

ELEMENTS = """\
Elements of the screen, with boxes in thousandths, x first:
0: "Wi-Fi" [0, 0, 500, 250]
1: "Clear cart" [0, 500, 1000, 750]
2: home icon [500, 750, 1000, 1000]"""


def test_coa_reads_goal_screen_and_types_of_the_actions(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="coa")
    assert text_of(messages).split("\n\n") == [
        f"Goal: {PLAIN.goal}",
        "Types of all actions so far, in order: click_element, scroll, input",
        ELEMENTS,
        "Which action is next?",
    ]
    assert "THINK" not in messages[0]["content"]
    (picture,) = pictures_of(messages)
    assert np.array_equal(picture, PLAIN.steps[3].screenshot)


def test_cot_reads_goal_and_screen_alone_and_asks_for_a_thought_first(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="cot")
    assert text_of(messages).split("\n\n") == [f"Goal: {PLAIN.goal}", ELEMENTS, "Which action is next?"]
    form = messages[0]["content"]
    assert form.index('"THINK"') < form.index('"ACTION"')
    assert "NEXT" not in form


def test_coat_reads_recorded_texts_actions_in_words_and_the_last_result(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="coat")
    assert text_of(messages).split("\n\n") == [
        f"Goal: {PLAIN.goal}",
        "All actions so far, in order:\n1. action 0\n2. action 1\n3. action 2",
        "What the last action did: result 2",
        "This screen in words: screen 3",
        ELEMENTS,
        "Which action is next?",
    ]
    assert "result 3" not in str(messages) and "thought" not in str(messages) and "screen 4" not in str(messages)
    form = messages[0]["content"]
    assert form.index('"THINK"') < form.index('"NEXT"') < form.index('"ACTION"')


def test_recorded_thoughts_of_earlier_steps_are_shown_and_that_of_the_current_step_is_not(tmp_path):
    first = replace(WITH_TEXTS.steps[0], notes={**WITH_TEXTS.steps[0].notes, "think": ""})
    [messages], _ = asked(tmp_path, replace(WITH_TEXTS, steps=(first, *WITH_TEXTS.steps[1:])), thoughts=True)
    thoughts = [f"{number}. {WITH_TEXTS.steps[number - 1].notes['think']}" for number in (2, 3)]
    assert text_of(messages).split("\n\n")[1:3] == [
        "All actions so far, in order:\n1. action 0\n2. action 1\n3. action 2",
        "\n".join(["The thoughts before these actions:", *thoughts]),
    ]
    assert WITH_TEXTS.steps[3].notes["think"] not in str(messages)


@pytest.mark.parametrize("texts", ["recorded", "phone"])
def test_without_recorded_texts_they_are_computed_from_the_screens(tmp_path, texts):
    [messages], _ = asked(tmp_path, PLAIN if texts == "recorded" else WITH_TEXTS, texts=texts)
    before, now = PLAIN.steps[2].screen, PLAIN.steps[3].screen
    text = text_of(messages)
    assert f"What the last action did: {result_text(before, now)}\n\nThis screen in words: {screen_text(now)}\n" in text


def test_a_text_that_the_episode_lacks_is_left_out(tmp_path):
    steps = [replace(step, notes={**step.notes, "screen": "", "result": ""}) for step in WITH_TEXTS.steps]
    [messages], _ = asked(tmp_path, replace(WITH_TEXTS, steps=tuple(steps)))
    text = text_of(messages)
    assert "in words:" not in text and "last action" not in text and "3. action 2" in text


def test_the_control_of_results_shows_that_of_an_earlier_action_or_none(tmp_path):
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        controlled = ControlledAgent(agent(url, tmp_path), CONTROLS["shuffled_results"])
        for episode in (PLAIN, WITH_TEXTS):
            for number in (1, 3):
                controlled.act(episode.goal, demonstrated(episode, number), recorded_screen(episode, number))
    first, _, second, later = (text_of(call.body["messages"]) for call in requests)
    assert "last action" not in first + second
    assert "result 0" in later or "result 1" in later


def test_earlier_actions_without_texts_are_described_by_a_template(tmp_path):
    [messages], _ = asked(tmp_path)
    lines = text_of(messages).split("\n\n")[1].splitlines()[1:]
    assert lines == ["1. click on the point (750, 250)", "2. scroll up", '3. type "grüße "world" 👋"']


def test_own_descriptions_are_the_history_of_a_run(tmp_path):
    turn = Turn(PLAIN.steps[0].screen, Answer("", None), Action.press("home"), {"action": "go home\nnow"})
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        agent(url, tmp_path).act("goal", [turn], PLAIN.steps[1].screen)
    assert "in order:\n1. go home now\n\n" in text_of(requests[0].body["messages"])


def test_an_action_that_the_phone_refused_is_not_claimed(tmp_path):
    turn = Turn(PLAIN.steps[0].screen, Answer("", None), Action.open_app("Notes"), {"action": "open Notes"})
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        agent(url, tmp_path).act("goal", [replace(turn, failed=True, changed=False)], PLAIN.steps[0].screen)
    assert "in order:\n1. open Notes (the phone did not perform this action)\n\n" in (
        text_of(requests[0].body["messages"])
    )


@pytest.mark.parametrize("texts", ["phone", "model"])
def test_thoughts_and_texts_that_utf8_cannot_hold_are_shown_at_the_next_step(tmp_path, texts):
    reply = CALL.replace("Clear cart", "\\ud800 cart") + "\ud800"
    screen = PLAIN.steps[0].screen
    with serving(lambda n, body: Reply(reply)) as (url, requests):
        coat = agent(url, tmp_path, texts=texts)
        first = coat.act("goal", [], screen)
        second = coat.act("goal", [Turn(screen, first, Action.press("home"), first.notes)], screen)
    assert (first.text, second.failed) == (reply, None)
    assert "1. click on ? cart" in text_of(requests[-1].body["messages"])


def test_the_first_step_has_no_paragraph_about_earlier_ones(tmp_path):
    for mode in ("coa", "coat"):
        [messages], _ = asked(tmp_path / mode, WITH_TEXTS, 0, mode=mode)
        assert "so far" not in text_of(messages) and "last action" not in text_of(messages)


def test_the_model_is_asked_for_texts_that_know_neither_goal_nor_later_screens(tmp_path):
    def answer(n: int, body: dict) -> Reply:
        text = text_of(body["messages"])
        return Reply("a cart\npage" if "Describe this screen" in text else "it opened" if "State in" in text else CALL)

    with serving(answer) as (url, requests):
        coat = agent(url, tmp_path, texts="model")
        answer = coat.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
        coat.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
    describe, compare, act = (call.body["messages"] for call in requests)
    assert WITH_TEXTS.goal not in str((describe, compare))
    assert [len(pictures_of(messages)) for messages in (describe, compare, act)] == [1, 2, 1]
    assert np.array_equal(pictures_of(compare)[0], WITH_TEXTS.steps[2].screenshot)
    assert "The action: action 2" in text_of(compare)
    assert "last action did: it opened\n\nThis screen in words: a cart page\n" in text_of(act)
    assert answer.notes == {"screen": "a cart page", "think": "the cart is full", "action": "click on Clear cart"}
    assert answer.usage.calls == 3
    assert len(requests) == 3  # the second time all replies were on disk


def test_marks_are_drawn_with_the_numbers_of_the_list(tmp_path):
    [messages], answer = asked(tmp_path, elements="marks")
    assert "Elements of the screen" not in text_of(messages)
    assert "the number beside the box" in messages[0]["content"]
    (picture,) = pictures_of(messages)
    assert not np.array_equal(picture, PLAIN.steps[3].screenshot)
    assert answer.action == Action.tap(0.625, 0.5)


@pytest.mark.parametrize("elements", [None, ()])
def test_without_elements_the_model_is_asked_for_a_box(tmp_path, elements):
    screen = Screen(PLAIN.steps[0].screenshot, elements)
    box = '{"ACTION": "click_element", "ARGS": {"bbox": [100, 200, 300, 400]}}'
    with serving(lambda n, body: Reply(box)) as (url, requests):
        answer = agent(url, tmp_path).act("goal", [], screen)
    assert "bbox" in (form := requests[0].body["messages"][0]["content"]) and "idx" not in form
    assert answer.action.touch_yx == pytest.approx((0.3, 0.2))
    assert answer.box == pytest.approx((0.2, 0.1, 0.2, 0.2))


def test_numbers_count_elements_in_rows_whatever_their_order_in_the_source(tmp_path):
    shuffled = [UiElement((0.5, 0.6, 0.1, 0.2), "d"), UiElement((0.02, 0.5, 0.1, 0.2), "b")]
    shuffled += [UiElement((0.0, 0.0, 0.1, 0.2), "a"), UiElement((0.48, 0.1, 0.1, 0.2), "c")]
    assert [element.text for element in in_rows(shuffled)] == ["a", "b", "c", "d"]
    screen = replace(PLAIN.steps[0].screen, elements=tuple(shuffled))
    with serving(lambda n, body: Reply(CALL)) as (url, _):
        answer = agent(url, tmp_path).act("goal", [], screen)
    assert answer.box == shuffled[1].box
    assert answer.action == Action.tap(*shuffled[1].centre_yx)


def test_odd_boxes_and_texts_stay_on_their_line(tmp_path):
    odd = (UiElement((0.5, 0.5, -0.1, -0.1), "a\n1: b"), UiElement((-0.2, -0.2, 3.0, 3.0), "", "odd"))
    screen = replace(PLAIN.steps[0].screen, elements=odd)
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        for kind in ("text", "marks"):
            agent(url, tmp_path, elements=kind).act("$goal\n\n{x}", [], screen)
    text = text_of(requests[0].body["messages"])
    assert text.startswith("Goal: $goal {x}\n")
    assert '0: "a\\n1: b" [500, 500, 400, 400]\n1: odd [0, 0, 1000, 1000]\n' in text


def test_under_the_control_without_history_no_earlier_step_is_shown(tmp_path):
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        controlled = ControlledAgent(agent(url, tmp_path), CONTROLS["no_history"])
        controlled.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
    text = text_of(requests[0].body["messages"])
    assert "so far" not in text and "last action" not in text and "screen 3" in text
