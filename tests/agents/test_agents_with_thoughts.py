"""Agents that write thoughts: batched answers are those of each step alone, and inputs are recorded or the phone's."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from helpers import tiny
from helpers.data.notes import ALL, lines, row, with_texts
from helpers.models import families
from helpers.runs import auto_ui_run

from vlm_agent.action_languages.auto_ui import AutoUiLanguage
from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.agent import Turn, demonstrated, episode_of
from vlm_agent.agents.auto_ui.agent import AutoUiAgent
from vlm_agent.agents.controls import CONTROLS, ControlledAgent, controls_of
from vlm_agent.agents.decoding.greedy import answer_spans
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Screen, recorded_screen
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.notes import with_shuffled_results
from vlm_agent.texts.phone import result_text, screen_text

WORDS = tiny.tokenizer()
RECORDED = [with_texts(tiny.episode(number)) for number in range(2)]
WITHOUT = [tiny.episode(2), tiny.episode(3, tiny.ACTIONS[::-1])]
"""Without texts, so that agents read those of the phone."""
SOME = replace(
    with_texts(tiny.episode(4)),
    steps=tuple(
        step if number in (0, 3) else replace(step, notes={})
        for number, step in enumerate(with_texts(tiny.episode(4)).steps)
    ),
)
"""With texts at two of its steps: the others have those of the phone."""
UNDER = [None, "no_history", "shuffled_results"]


@pytest.fixture(scope="module")
def model():
    """Trained on one episode, so that some of its answers agree with the demonstration, and some do not."""
    family = families.family("llama_vit")
    model = family.model.train()
    sentences = replace(family.sentences, notes=lines(ALL))
    batch = family.row(sentences.build(RECORDED[0]))
    families.fit(model, batch, 60)
    return model.eval()


def vlm(model, notes: dict = ALL, **options) -> VlmAgent:
    return VlmAgent(model, WORDS, replace(tiny.sentences(WORDS), notes=lines(notes, 40)), **options)


def under(control: str | None, agent):
    return agent if control is None else ControlledAgent(agent, CONTROLS[control])


@pytest.mark.parametrize("control", UNDER)
def test_batched_trajectories_answer_as_each_step_alone(model, control):
    agent = under(control, vlm(model))
    alone = answer_step_by_step(agent, [*RECORDED, *WITHOUT, SOME])
    assert agent.answer_episodes([*RECORDED, *WITHOUT, SOME]) == alone
    answers = [answer for answers in alone for answer in answers]
    assert len({answer.text for answer in answers}) > 2
    assert all(answer.notes is not None for answer in answers)


def test_a_trained_agent_writes_the_thoughts_and_the_actions_it_learned(model):
    (answers,) = vlm(model).answer_episodes(RECORDED[:1])
    for answer, step in zip(answers, RECORDED[0].steps, strict=True):
        expected = {"think": step.notes["think"].strip(), "action": step.notes["action"]}
        assert (answer.notes, answer.action) == (expected, step.action)
        assert answer.usage.from_prefill
        assert answer.text.count("\n") >= 2


def test_constrained_answers_are_actions_after_free_thoughts(model):
    agents = vlm(model), vlm(model, constrained=True)
    free, constrained = (agent.answer_episodes(RECORDED + WITHOUT) for agent in agents)
    alone = answer_step_by_step(vlm(model, constrained=True), RECORDED + WITHOUT)
    assert constrained == alone
    pairs = zip(chain.from_iterable(free), chain.from_iterable(constrained), strict=True)
    for before, answer in pairs:
        assert answer.action is not None
        assert before.action is None or before.text.count("\n") < 2 or before == answer


def test_an_answer_may_be_longer_than_an_action_by_the_tokens_of_thoughts(model):
    agent = vlm(model)
    assert agent.limits.max_tokens == tiny.LANGUAGE.max_tokens + 40
    assert vlm(model, {"screen": "read"}).limits.max_tokens == tiny.LANGUAGE.max_tokens
    sentence = agent.sentences.build(RECORDED[0], with_unwritable=True)
    spans = answer_spans(sentence, agent.sentences.end_mark)
    assert len(spans) == len(RECORDED[0])
    assert agent.sentences.text(sentence.input_ids[slice(*spans[1])]).startswith("think-1 a\naction-1\n")


class Inputs:
    """A decoder that keeps the sentences that it begins, and answers with an end mark."""

    def __init__(self, agent) -> None:
        self.agent, self.sentences, decoder = agent, list[Sentence](), agent.decoder

        def begin(sentence):
            self.sentences.append(sentence)
            return decoder.__class__.begin(decoder, sentence)

        self.begin, self.step = begin, decoder.step

    @property
    def texts(self) -> list[str]:
        ids = ([id_ for id_ in one.input_ids if id_ >= 0] for one in self.sentences)
        return [self.agent.sentences.text(one) for one in ids]


def test_on_a_phone_an_agent_reads_texts_of_the_screen_and_its_own_thoughts(model):
    agent = vlm(model)
    agent = replace(agent, decoder=Inputs(agent))
    before, now = (replace(step.screen, activity=f"org.app/.Page{n}") for n, step in enumerate(WITHOUT[0].steps[:2]))
    thoughts = {"think": "Wi-Fi is  here", "action": "tap Wi-Fi"}
    turn = Turn(before, None, tiny.ACTIONS[0], thoughts)
    agent.act("open settings", [turn], now)
    (text,) = agent.decoder.texts
    assert f"Screen: {screen_text(before)}\n\nAction: Wi-Fi is here\ntap Wi-Fi\ntap at" in text
    assert text.endswith(f"Result: {result_text(before, now)}\nScreen: {screen_text(now)}\n\nAction: ")


@pytest.mark.parametrize("control", UNDER)
def test_inputs_step_by_step_are_those_of_the_batch(model, control):
    agent = vlm(model)
    for episode in (RECORDED[1], WITHOUT[0], SOME):
        alone = replace(agent, decoder=Inputs(agent))
        answer_step_by_step(under(control, alone), [episode])
        shuffled = with_shuffled_results(episode) if control == "shuffled_results" else episode
        steps = [replace(shuffled, steps=shuffled.steps[: n + 1]) for n in range(len(episode))]
        if control == "no_history":
            steps = [replace(one, steps=one.steps[-1:]) for one in steps]
        expected = [agent.sentences.prompt(one).input_ids for one in steps]
        assert [one.input_ids for one in alone.decoder.sentences] == expected


def test_recorded_turns_are_the_episode_again():
    episode = RECORDED[0]
    again = episode_of(episode.goal, demonstrated(episode, 4), recorded_screen(episode, 4), with_notes=True)
    for number, step in enumerate(again.steps[:4]):
        assert step.notes == episode.steps[number].notes
    assert again.steps[4].notes == {
        "screen": "screen-4",
        "result": "",
    }  # neither its thoughts nor the result of its action


def test_only_agents_that_read_results_have_the_control_that_shuffles_them():
    assert controls_of(()) == controls_of(("screen", "think")) == ("grey_screens", "no_history")
    assert controls_of(("result",)) == ("grey_screens", "no_history", "shuffled_results")


@pytest.fixture
def auto_ui(tmp_path, monkeypatch) -> AutoUiAgent:
    auto_ui_run.register(monkeypatch)
    run = auto_ui_run.write_run(tmp_path / "run", notes=row(10), max_target_tokens=60)
    return AutoUiAgent.from_run(run)


@pytest.mark.parametrize("control", UNDER)
def test_batched_steps_answer_as_each_step_alone(auto_ui, control):
    agent = under(control, auto_ui)
    episodes = [RECORDED[1], WITHOUT[1]]
    alone = answer_step_by_step(agent, episodes)
    for batch_size in (3, 32):
        together = under(control, replace(auto_ui, batch_size=batch_size)).answer_episodes(episodes)
        assert together == alone
    assert len({answer.text for answers in alone for answer in answers}) > 2


def test_constrained_steps_are_actions_after_free_thoughts(auto_ui):
    agent = replace(auto_ui, constrained=True)
    episode = replace(RECORDED[0], steps=RECORDED[0].steps[:2])
    constrained = agent.answer_episodes([episode])
    assert constrained == answer_step_by_step(agent, [episode])
    for answer in constrained[0]:
        assert answer.action is not None
        assert 1 <= len(answer.notes["plan"].split("\n")) <= 4


def test_a_step_answer_has_thoughts_plan_and_action(auto_ui, monkeypatch):
    step = RECORDED[0].steps[1]
    written = auto_ui.sentences.encode(auto_ui.sentences.target(RECORDED[0].steps[1:]), ()).input_ids
    monkeypatch.setattr(AutoUiAgent, "_decode", lambda *_: [written] * len(RECORDED[0]))
    ((answer, *_),) = auto_ui.answer_episodes(RECORDED[:1])
    assert {name: answer.notes[name] for name in ("think", "action")} == {
        name: step.notes[name] for name in ("think", "action")
    }
    assert answer.notes["plan"].split("\n")[0] == "DUAL_POINT"
    assert answer.action == AutoUiLanguage().decode(AutoUiLanguage().encode(step.action))


def test_a_step_on_a_phone_reads_texts_of_the_screen(auto_ui):
    before, now = (step.screen for step in WITHOUT[0].steps[:2])
    episode = episode_of("open settings", [Turn(before, None, tiny.ACTIONS[0])], now, with_notes=True)
    text = auto_ui.sentences.text(
        auto_ui.sentences.encode(auto_ui.sentences.source_of(episode, 1).segments, ()).input_ids
    )
    tail = f"Action Result: {result_text(before, now)} Screen Description: {screen_text(now)}"
    assert " ".join(text.split()).endswith(" ".join(tail.split()))
    pixels = np.zeros((40, 20, 3), np.uint8)
    assert auto_ui.act("go", [], Screen(pixels)).failed is None
