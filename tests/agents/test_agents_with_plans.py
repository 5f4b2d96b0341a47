"""Agents that write or read plans: batched answers are those of each step alone, and a static plan is their own."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest
from helpers import tiny
from helpers.data.notes import FORMS, lines, with_plans, with_texts
from helpers.models import families

from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.agent import Turn, demonstrated, episode_of
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.windows import EarlierSteps

WORDS = tiny.tokenizer()
EPISODES = [with_plans(with_texts(tiny.episode(0))), with_plans(with_texts(tiny.episode(1, tiny.ACTIONS[::-1])))]


def trained(form: str):
    """Trained on the steps of one episode, so that some of its answers agree with the demonstration."""
    family = families.family("llama_vit")
    model = family.model.train()
    writer = replace(family.sentences, notes=lines(FORMS[form], 30), past=EarlierSteps(0))
    batch = family.row(*(writer.build_step(EPISODES[0], number) for number in range(len(EPISODES[0]))))
    families.fit(model, batch, 60)
    return model.eval()


@pytest.fixture(scope="module")
def d_pot():
    return trained("d_pot")


@pytest.fixture(scope="module")
def static():
    return trained("static")


def agent(model, form: str, screens: int = 0, thoughts: tuple[str, ...] = (), **options) -> VlmAgent:
    notes = lines(FORMS[form] | dict.fromkeys(thoughts, "learned"), 40 if thoughts else 30)
    writer = replace(tiny.sentences(WORDS), notes=notes, past=EarlierSteps(screens))
    return VlmAgent(model, WORDS, writer, **options)


@pytest.mark.parametrize("control", [None, "no_history", "grey_screens"])
@pytest.mark.parametrize("form", FORMS)
def test_batched_steps_answer_as_each_step_alone(d_pot, static, form, control):
    model = static if "static" in form else d_pot
    for one in (agent(model, form), agent(model, form, 1, ("think",))):
        controlled = one if control is None else ControlledAgent(one, CONTROLS[control])
        batched = controlled.answer_episodes(EPISODES)
        assert batched == answer_step_by_step(controlled, EPISODES)
        assert len({answer.text for answers in batched for answer in answers}) > 1


@pytest.mark.parametrize("form", ["d_pot", "static, step", "given"])
def test_constrained_answers_are_actions_and_equal_each_step_alone(d_pot, form):
    one = agent(d_pot, form, constrained=True)
    constrained = one.answer_episodes(EPISODES)
    assert constrained == answer_step_by_step(one, EPISODES)
    assert all(answer.action is not None for answer in chain.from_iterable(constrained))


def test_a_trained_agent_writes_plan_step_and_action(d_pot):
    (answers,) = agent(d_pot, "d_pot").answer_episodes(EPISODES[:1])
    for answer, step in zip(answers, EPISODES[0].steps, strict=True):
        plan = "\n".join(line.strip() for line in step.notes["plan"].split("\n"))
        assert answer.notes == {"plan": plan, "step": step.notes["step"], "action": step.notes["step"]}
        assert answer.action == step.action
        assert answer.usage.from_prefill


def test_a_recorded_static_plan_is_never_read(static):
    episode, usual = EPISODES[0], agent(static, "static").answer_episodes([EPISODES[0]])[0]
    first = replace(episode.steps[0], notes={"plan": "an oracle", "step": "x"})
    assert agent(static, "static").answer_episodes([replace(episode, steps=(first, *episode.steps[1:]))])[0] == usual
    assert usual[0].notes["plan"] and not any("plan" in answer.notes for answer in usual[1:])


class Prompts:
    """A decoder that keeps the texts that it begins, and answers as the model."""

    def __init__(self, decoder) -> None:
        self.texts, self.step = list[str](), decoder.step

        def begin(sentence):
            self.texts.append(WORDS.decode([id_ for id_ in sentence.input_ids if id_ >= 0]))
            return decoder.begin(sentence)

        self.begin = begin


def on_a_phone(one: VlmAgent, steps: int = 3) -> tuple[list[str], list]:
    """The prompts of an episode whose history is the agent's own, and its answers."""
    prompts = Prompts(one.decoder)
    one, history, answers = replace(one, decoder=prompts), list[Turn](), []
    for step in EPISODES[0].steps[:steps]:
        screen = step.screen
        answers.append(one.act("open settings 0", history, screen))
        history.append(Turn(screen, answers[-1], step.action, answers[-1].notes))
    return prompts.texts, answers


def test_on_a_phone_the_memory_of_d_pot_is_its_own_steps(d_pot):
    texts, answers = on_a_phone(agent(d_pot, "d_pot"))
    lines = "".join(
        f"{answer.notes['step'] or tiny.LANGUAGE.encode(tiny.ACTIONS[n])}\n" for n, answer in enumerate(answers[:2])
    )
    assert texts[2].endswith(f"Goal: open settings 0\nDone:\n{lines}\nAction: ")
    assert not any((line := answer.notes["plan"].split("\n")[0]) and line in texts[2] for answer in answers)


def test_on_a_phone_a_static_plan_is_that_of_the_first_answer(static):
    texts, answers = on_a_phone(agent(static, "static"))
    assert len(texts) == 3
    assert f"\nPlan: {answers[0].notes['plan'].replace(chr(10), '; ')}\nDone:\n" in texts[2]


def test_on_a_phone_an_empty_static_plan_is_left_out(static):
    one = agent(static, "static")
    prompts = Prompts(one.decoder)
    first = replace(one.act("open settings 0", [], EPISODES[0].steps[0].screen), notes={"plan": ""})
    screens = [step.screen for step in EPISODES[0].steps[:2]]
    turn = Turn(screens[0], first, tiny.ACTIONS[0])
    replace(one, decoder=prompts).act("open settings 0", [turn], screens[1])
    assert "Plan:" not in prompts.texts[0]


def test_given_plans_need_recorded_episodes(d_pot):
    one = agent(d_pot, "given")
    with pytest.raises(UserError, match="a phone has none"):
        one.act("go", [], EPISODES[0].steps[0].screen)
    assert one.act("go", [], recorded_screen(EPISODES[0], 0)).notes == {}


def test_recorded_plans_and_own_ones_are_the_episode_again():
    history = demonstrated(EPISODES[0], 2)
    again = episode_of(EPISODES[0].goal, history, recorded_screen(EPISODES[0], 2))
    for step, recorded in zip(again.steps, EPISODES[0].steps, strict=False):
        assert [step.notes[name] for name in ("plan", "step")] == [recorded.notes[name] for name in ("plan", "step")]
    assert not Screen(None).notes


def test_thought_and_description_stay_beside_the_step(d_pot):
    one = agent(d_pot, "learned step", thoughts=("think", "action"))
    found = one.sentences.notes.split("now\nwhy\nwhat\npress back")
    assert found == ({"step": "now", "think": "why", "action": "what"}, "press back")


def test_a_served_run_names_the_recorded_plans_that_it_reads_as_the_run_itself_does(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    content["data"] |= {"past_screens": 0, "notes": "d_pot_read"}
    served = EndpointSettings(endpoint="http://localhost:1", model="m", as_trained="run")
    own = VlmSettings(run="run")
    for settings in (served, own):
        vars(settings)["_recipe" if settings is served else "recipe"] = Recipe(**content)
    vars(own)["_trained"] = SimpleNamespace(adapted=False)
    assert served.text_notes == own.text_notes
    assert {"plans", "immediate steps", "earlier steps"} == set(served.text_notes)
    assert EndpointSettings(endpoint="http://localhost:1", model="m").text_notes == {}
