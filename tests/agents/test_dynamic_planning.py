"""The planning agent: what each mode shows to the model, and what it remembers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.planning_model import (
    CLICK,
    EPISODE,
    FILE,
    HOME,
    HTML,
    Model,
    agent,
    kind_of,
    paragraphs,
    pictures_of,
    planned,
    text_of,
)
from helpers.data.feature_shards import write_several

from vlm_agent.agents import Answer, Turn
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.dynamic_planning.plans import PlansError, read_plans
from vlm_agent.agents.llm.replies import Plan
from vlm_agent.cli import OK, main
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import read_predictions

# Modes


def test_d_pot_asks_for_plan_and_step_then_for_the_action_and_remembers_the_steps_line_alone(tmp_path):
    model, answers = planned(tmp_path, "d_pot", screen="html")
    assert model.kinds == ["plan_and_step", "action"] * 5
    plan, action = model.of("plan_and_step")[2], model.of("action")[2]
    html = f"Elements of the screen:\n{HTML}"
    question = "What is the plan, and what is to be done now?"
    assert paragraphs(plan) == [f"Goal: {EPISODE.goal}", "Steps so far:\n1. step 0\n2. step 1", html, question]
    assert paragraphs(action) == [f"Goal: {EPISODE.goal}", "To be done now: step 2", html, "Which action is it?"]
    assert "first" not in str(model.of("action")) + str(plan[1:])  # no plan, neither this one nor an earlier one
    assert answers[2] == Answer(
        CLICK,
        Action.tap(0.625, 0.5),
        {"action": "step 2", "plan": "first 2\nsecond 2", "step": "step 2"},
        box=tiny.ELEMENTS[1].box,
    )
    assert answers[2].usage.calls == 2


def test_none_shows_goal_and_screen_alone(tmp_path):
    model, answers = planned(tmp_path, "none", screen="html")
    assert model.kinds == ["action"]  # every step has the same elements: the same request
    assert paragraphs(model.of("action")[0])[0::2] == [f"Goal: {EPISODE.goal}", "Which action is it?"]
    assert answers[0].notes == {}


def test_few_shot_has_as_many_examples_as_are_set_in_the_action_language(tmp_path):
    for count in (1, 5):
        model, _ = planned(tmp_path / str(count), "few_shot", examples=count)
        opening = model.of("action")[0][0]["content"]
        assert opening.count("\nAction: {") == count
        assert 'Goal: Turn on the torch\nScreen:\n<p id=0 class="text" alt="Quick settings">' in opening
        assert 'Action: {"action_type": "click", "idx": 1}' in opening


def test_seeact_describes_in_words_first_and_shows_the_actions_so_far(tmp_path):
    model, answers = planned(tmp_path, "seeact")
    assert model.kinds == ["description", "action"] * 5
    assert "Actions so far:\n1. click on Clear cart\n2. click on Clear cart" in paragraphs(model.of("description")[2])
    assert "What is to be done next, in words: It is a shop. Click 2" in paragraphs(model.of("action")[2])
    assert answers[2].notes == {"think": "It is a shop. Click 2"}


@pytest.mark.parametrize(("rounds", "shown"), [(0, 0), (1, 1), (2, 2), (4, 4), ("all", 4)])
def test_react_shows_the_last_rounds_with_their_screens_thoughts_and_actions(tmp_path, rounds, shown):
    model, answers = planned(tmp_path, "react", rounds=rounds)
    assert model.kinds == ["action"] * 5
    opening, *turns = model.of("action")[4]
    assert "Thought: what to do, and why" in opening["content"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * shown + ["user"]
    assert [text_of(turn) for turn in turns[1::2]] == [
        f"Thought: thought {n}\nAction: {CLICK}" for n in range(4 - shown, 4)
    ]
    for turn, step in zip(turns[0::2], EPISODE.steps[4 - shown :], strict=True):
        assert text_of(turn).startswith(f"Goal: {EPISODE.goal}\n\nElements of the screen:\n{HTML}\n\n")
        assert np.array_equal(pictures_of(turn)[0], step.screenshot)
    assert (answers[4].text, answers[4].notes) == (CLICK, {"think": "thought 4"})


def test_static_asks_for_one_plan_an_episode_and_counts_it_once(tmp_path):
    for past in ("own", "demonstrated"):
        model, answers = planned(tmp_path / past, "static", past=past)
        assert sorted(model.kinds) == ["action"] * 5 + ["plan"]
        assert np.array_equal(pictures_of(model.of("plan")[0][-1])[0], EPISODE.steps[0].screenshot)
        assert all("Plan:\n1. first 0\n2. second 0" in paragraphs(messages) for messages in model.of("action"))
        assert [answer.usage.calls for answer in answers] == [2, 1, 1, 1, 1]


def test_dynamic_plans_for_each_screen_without_earlier_steps(tmp_path):
    model, _ = planned(tmp_path, "dynamic")
    assert model.kinds == ["plan", "action"] * 5
    assert "so far:" not in str(model.asked)
    assert "Plan:\n1. first 2\n2. second 2" in paragraphs(model.of("action")[2])


@pytest.mark.parametrize("mode", ["d_pot", "static", "dynamic", "react", "seeact"])
def test_no_call_of_a_step_sees_a_later_screen(tmp_path, mode):
    model, _ = planned(tmp_path, mode, **({"rounds": "all"} if mode == "react" else {}))
    calls = len(model.asked)
    later = [step.screenshot for step in EPISODE.steps]
    for place, (_, messages) in enumerate(model.asked):
        number = place if mode == "react" else place // 2 if calls == 10 else max(place - 1, 0)
        seen = [picture for message in messages for picture in pictures_of(message)]
        assert np.array_equal(seen[-1], later[number])
        assert not any(np.array_equal(one, screen) for one in seen for screen in later[number + 1 :])


def test_reflexion_judges_by_itself_and_asks_once_more(tmp_path):
    model, answers = planned(tmp_path, "reflexion", Model(action=[CLICK, HOME]), feedback="own")
    assert model.kinds[:3] == ["action", "verdict", "action"]
    assert "Action: click on Clear cart" in paragraphs(model.of("verdict")[0])
    *first, answer, wrong = model.of("action")[1]
    assert first == model.of("action")[0]
    assert (answer["content"], wrong["content"][:38]) == (CLICK, "This action is wrong. Because 0. Think")
    assert (answers[0].text, answers[0].action) == (HOME, Action.press("home"))


def test_reflexion_with_gold_feedback_asks_again_where_the_recorded_action_differs_and_says_so(tmp_path):
    episode = tiny.episode(1, (Action.tap(0.6, 0.5), Action.press("back"), Action.press("home")))
    shards = tiny.write_shards(tmp_path / "shards", [episode], "test")
    model, path, output = Model(action=[CLICK, CLICK, HOME]), tmp_path / "agent.yaml", tmp_path / "out"
    with serving(model) as (url, _):
        path.write_text(FILE.format(url=url) + "mode: reflexion\nfeedback: gold\n")
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        command += ["--controls", "none"]
        assert main(command) == OK
    # A click is right at the first step. At the second one it is asked for again, and home is wrong as well; at the
    # third one home is the first answer, and right.
    assert ["This action is wrong." in str(messages[-1]) for messages in model.of("action")] == [
        False,
        False,
        True,
        False,
    ]
    rows = read_predictions(output / "predictions.parquet")
    assert [row.predicted for row in rows] == [Action.tap(0.625, 0.5), Action.press("home"), Action.press("home")]
    assert "gold feedback" in (output / "report.html").read_text()
    with serving(model) as (url, _), pytest.raises(UserError, match="needs recorded actions"):
        agent(url, tmp_path, mode="reflexion", feedback="gold").act("goal", [], EPISODE.steps[0].screen)


def test_on_a_phone_reflexion_names_the_actions_that_left_the_screen_unchanged(tmp_path):
    screen, other = EPISODE.steps[0].screen, EPISODE.steps[1].screen
    past = [Turn(shown, Answer("", action), action, changed=changed) for shown, action, changed in (
        (other, Action.press("back"), True), (screen, Action.press("home"), False),
        (screen, Action.tap(0.625, 0.5), False)
    )]  # fmt: skip
    model = Model()
    with serving(model) as (url, _):
        reflexion = agent(url, tmp_path, mode="reflexion", feedback="screen")
        reflexion.act("goal", past, screen)
        reflexion.act("goal", [*past[:2], replace(past[2], changed=True)], other)
        with pytest.raises(UserError, match="needs a phone"):
            reflexion.answer_episodes([EPISODE])
    first, second = (text_of(messages[-1]) for messages in model.of("action"))
    assert "The last action was: press the home button, then click on Clear cart\nIt did not change" in first
    assert "did not change" not in second


@pytest.mark.parametrize("mode", ["react", "seeact", "d_pot"])
def test_an_action_that_the_phone_refused_is_not_claimed(tmp_path, mode):
    screen, action = EPISODE.steps[0].screen, Action.open_app("Notes")
    done = Turn(screen, Answer("", action, {"action": "open Notes"}), action, changed=False)
    model = Model()
    with serving(model) as (url, _):
        for turn in (done, replace(done, failed=True)):
            agent(url, tmp_path, mode=mode).act("goal", [turn], screen)
    notices = [str(messages).count("the phone did not perform this action") for _, messages in model.asked]
    assert sorted(notices) == [*[0] * (len(notices) - 1), 1]


# Screens, past, plans


def test_screens_are_html_a_picture_or_both_in_both_calls(tmp_path):
    for shown in ("html", "picture", "both"):
        model, _ = planned(tmp_path / shown, "d_pot", screen=shown)
        for _, messages in model.asked[:2]:
            assert (HTML in text_of(messages[-1])) == (shown != "picture")
            assert isinstance(messages[-1]["content"], str) == (shown == "html")
            pictures = pictures_of(messages[-1])
            assert len(pictures) == (shown != "html")
            if pictures:  # a picture alone has the numbers of its elements
                assert np.array_equal(pictures[0], EPISODE.steps[0].screenshot) == (shown == "both")
    model, _ = planned(tmp_path / "binned", "none", Model(action=["tap at 1 1"]), screen="picture", action_language={})
    assert np.array_equal(pictures_of(model.asked[0][1][-1])[0], EPISODE.steps[0].screenshot)


def test_the_past_is_the_agents_own_or_the_demonstrated_one(tmp_path):
    wrong = Model(action=[HOME])
    model, _ = planned(tmp_path / "own", "seeact", wrong)
    assert "1. press the home button\n2. press the home button\n3. press" in text_of(model.of("description")[3][-1])
    model, _ = planned(tmp_path / "demonstrated", "seeact", Model(action=[HOME]), past="demonstrated")
    lines = '1. click on the point (750, 250)\n2. scroll up\n3. type "grüße "world" 👋"'
    assert lines in text_of(model.of("description")[3][-1])
    model, _ = planned(tmp_path / "d_pot", "d_pot", Model(action=[HOME]), past="demonstrated")
    assert lines in text_of(model.of("plan_and_step")[3][-1])
    model, _ = planned(tmp_path / "react", "react", past="demonstrated", rounds=1)
    assert text_of(model.of("action")[3][-2]).startswith('Action: {"action_type": "type", "text": "grüße ')


def test_own_past_never_shows_a_demonstrated_action(tmp_path):
    actions = (Action.type_text("secret one"), Action.type_text("secret two"), Action.type_text("secret three"))
    for mode in MODES:
        options = {"feedback": "own"} if mode == "reflexion" else {}
        unreadable = Model(action=["no action", "still none", CLICK])
        model, _ = planned(tmp_path / mode, mode, unreadable, [tiny.episode(3, actions)], **options)
        assert "secret" not in str(model.asked)


def test_an_answer_that_is_no_action_leaves_no_trace_in_history(tmp_path):
    model, answers = planned(tmp_path, "d_pot", Model(action=["none", "none", CLICK]))
    assert [answer.action is None for answer in answers[:2]] == [True, False]
    assert "so far" not in text_of(model.of("plan_and_step")[1][-1])
    assert "Steps so far:\n2. step 1\n\n" in text_of(model.of("plan_and_step")[2][-1])


def test_recorded_steps_of_many_episodes_do_not_mix(tmp_path):
    """Answers depend on the request alone, so that sequences and threads cannot be confused unnoticed."""

    def answer(number: int, body: dict) -> Reply:
        text = text_of(body["messages"][-1])
        goal = text.splitlines()[0].removeprefix("Goal: ")
        assert text.count(" settings ") == text.count(goal)
        if kind_of(body["messages"]) == "action":
            return Reply(CLICK)
        return Reply(json.dumps({"plan": ["x"], "step": f"step of {goal}"}))

    episodes = [tiny.episode(number, tiny.ACTIONS[:4]) for number in range(6)]
    with serving(answer) as (url, _):
        answers = agent(url, tmp_path, screen="html", concurrency=6).answer_episodes(episodes)
    for episode, of_episode in zip(episodes, answers, strict=True):
        assert {one.notes["action"] for one in of_episode} == {f"step of {episode.goal}"}


PLAN = ["Open the shop", "Look\n further", "Type the words", "Press enter", "Declare the task complete"]


def test_a_file_of_plans_replaces_planning_calls(tmp_path):
    (tmp_path / "plans.json").write_text(json.dumps({EPISODE.id: PLAN[:4]}))
    model, answers = planned(tmp_path / "d_pot", "d_pot", plans=str(tmp_path / "plans.json"))
    assert set(model.kinds) == {"action"}
    steps = [next(part for part in paragraphs(messages) if "To be done" in part) for messages in model.of("action")]
    shown = ["Open the shop", "Look further", "Type the words", "Press enter", "Press enter"]
    assert steps == [f"To be done now: {line}" for line in shown]
    assert answers[1].notes["plan"] == "Look further\nType the words\nPress enter"
    model, answers = planned(tmp_path / "static", "static", plans=str(tmp_path / "plans.json"))
    assert "Plan:\n1. Open the shop\n2. Look further" in text_of(model.of("action")[3][-1])
    model, answers = planned(tmp_path / "dynamic", "dynamic", plans=str(tmp_path / "plans.json"))
    assert "Plan:\n1. Type the words\n2. Press enter\n" in text_of(model.of("action")[2][-1])
    with pytest.raises(PlansError, match="none for episode 2"):
        planned(tmp_path / "other", "static", episodes=[tiny.episode(2)], plans=str(tmp_path / "plans.json"))


def test_the_plans_of_shards_replace_planning_calls(tmp_path):
    def with_steps(episode, lines):
        steps = zip(episode.steps, lines, strict=True)
        return replace(
            episode,
            steps=tuple(replace(step, notes={"plan": "", "step": line} if line else {}) for step, line in steps),
        )

    planned_one = with_steps(EPISODE, PLAN)
    incomplete = with_steps(tiny.episode(2), [*PLAN[:4], None])
    with ShardWriter(tmp_path / "shards/general/a.parquet") as writer:
        for episode in (planned_one, incomplete, tiny.episode(3)):
            writer.write(episode, "test")
    write_manifest(
        tmp_path / "shards", {"files": [{"shard": "general/a.parquet", "subset": "general", "episodes_written": 3}]}
    )
    steps = tuple(Plan((), " ".join(line.split())) for line in PLAN)
    assert read_plans(tmp_path / "shards") == {EPISODE.id: steps}
    model, answers = planned(tmp_path / "d_pot", "d_pot", plans=str(tmp_path / "shards"))
    assert set(model.kinds) == {"action"}
    assert [one.notes["action"] for one in answers] == [" ".join(line.split()) for line in PLAN]
    with pytest.raises(PlansError, match="none for episode 2"):
        planned(tmp_path / "other", "d_pot", episodes=[tiny.episode(2)], plans=str(tmp_path / "shards"))
    with pytest.raises(PlansError, match="step 0 of episode 1 has an immediate step and no lines of a plan"):
        planned(tmp_path / "no lines", "static", plans=str(tmp_path / "shards"))


@pytest.mark.parametrize("mode", ["static", "dynamic", "d_pot"])
def test_no_step_shows_a_text_of_a_plan_that_shards_have_for_a_later_screen(tmp_path, mode):
    plans = [{"plan": f"line of {n}\nnext line of {n}", "step": f"step of {n}"} for n in range(len(EPISODE))]
    steps = [replace(step, notes=plan) for step, plan in zip(EPISODE.steps, plans, strict=True)]
    shards = tiny.write_shards(tmp_path / "shards", [replace(EPISODE, steps=tuple(steps))])
    model, answers = planned(tmp_path, mode, plans=str(shards))
    assert set(model.kinds) == {"action"}
    for number, (messages, answer) in enumerate(zip(model.of("action"), answers, strict=True)):
        seen = 0 if mode == "static" else number
        shown = f"step of {number}" if mode == "d_pot" else f"Plan:\n1. line of {seen}\n2. next line of {seen}\n"
        assert shown in text_of(messages[-1]) + "\n"
        assert answer.notes["plan"] == plans[seen]["plan"]
        assert not any(f"of {later}" in str(messages) for later in range(seen + 1, len(EPISODE)))


def test_shards_without_plans_are_refused_in_one_sentence(tmp_path):
    folder = write_several(tmp_path / "shards", subsets=("general",))
    with pytest.raises(PlansError, match="no episode with a plan at every step; write plans with"):
        read_plans(folder)


@pytest.mark.parametrize(
    "content",
    ["[]", "{", '{"1": "open"}', '{"1": []}', '{"1": [""]}', '{"1": [7]}', '{"1": ["a"], "1": ["b"]}', "[" * 9999],
)
def test_a_wrong_file_of_plans_is_one_sentence(tmp_path, content):
    (tmp_path / "plans.json").write_text(content)
    with pytest.raises(PlansError, match=r"plans\.json") as error:
        agent("http://a:1", tmp_path, plans=str(tmp_path / "plans.json"))
    assert "\n" not in str(error.value)


def test_under_the_control_without_history_every_screen_is_planned_for_anew(tmp_path):
    model = Model()
    with serving(model) as (url, _):
        controlled = ControlledAgent(agent(url, tmp_path, mode="d_pot"), CONTROLS["no_history"])
        [answers] = controlled.answer_episodes([EPISODE])
    assert len(answers) == 5 and "so far" not in str(model.asked)


def test_numbers_before_the_lines_of_a_file_of_plans_are_left_out(tmp_path):
    steps = ["1. Open the clock", "Step 2: Tap Alarm", "3) Done"]
    (tmp_path / "plans.json").write_text(json.dumps({"a": steps}))
    assert [plan.step for plan in read_plans(tmp_path / "plans.json")["a"]] == ["Open the clock", "Tap Alarm", "Done"]
