"""Batched answers after one prefill have the same tokens as answers step by step."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.models import families
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.agents import answer_step_by_step, demonstrated
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.vlm.agent import BATCH_TOKENS, VlmAgent, batches, bytes_of_token, fitting_tokens, tokens_at_once
from vlm_agent.episodes import Action, Episode, UiElement, recorded_screen
from vlm_agent.models.cost import DecoderShape
from vlm_agent.models.llama_vit.family import LlamaViTDecoder, collate
from vlm_agent.sentences.trajectory import TrajectorySentences

WORDS = tiny.tokenizer()
LONG = Action.type_text("abcdefghijklmnopqrstuvwxyz" * 4)
"""Longer than `max_tokens` of the language."""

EPISODES = [
    *(tiny.episode(number) for number in range(3)),
    tiny.episode(3, (Action.complete(),)),
    tiny.episode(4, (LONG, Action.tap(0.5, 0.5), LONG)),
    tiny.episode(5, tiny.ACTIONS[::-1] + tiny.ACTIONS),
]


def make_agent(model, **options) -> VlmAgent:
    return VlmAgent(model, WORDS, tiny.sentences(WORDS), **options)


def under(name: str | None, agent: VlmAgent):
    return agent if name is None else ControlledAgent(agent, CONTROLS[name])


def fitted(steps: int, episodes):
    """A model after `steps` optimizer steps on `episodes`, so that its answers agree with some demonstrated actions."""
    family = families.family("llama_vit")
    model = family.model.train()
    row = family.row(*[family.sentences.build(episode) for episode in episodes])
    families.fit(model, row, steps)
    return model.eval()


@cache
def trained(steps: int, of_all: bool = False):
    return fitted(steps, EPISODES if of_all else EPISODES[:1])


MODELS = {
    "random": lambda: trained(0),
    "half trained": lambda: trained(25),
    "trained": lambda: trained(60),
    "half trained on all": lambda: trained(50, of_all=True),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def step_by_step(agent, episode) -> list:
    return answer_step_by_step(agent, [episode])[0]


def decoded_ids(agent: VlmAgent, monkeypatch, run) -> tuple[list, list]:
    """The result of `run(agent)`, and the token ids of each answer."""
    ids = []
    plain = VlmAgent._answer

    def answer(self, new, *rest, **named):
        ids.append(new)
        return plain(self, new, *rest, **named)

    monkeypatch.setattr(VlmAgent, "_answer", answer)
    answers = run(agent)
    monkeypatch.undo()
    return answers, ids


def flat(answers: list[list]) -> list:
    return [answer for episode in answers for answer in episode]


@pytest.mark.parametrize("control", [None, *CONTROLS])
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
def test_batched_episodes_have_the_same_tokens_as_step_by_step(model, control, constrained, monkeypatch):
    agent = make_agent(model, constrained=constrained)
    stepwise = decoded_ids(
        under(control, agent), monkeypatch, lambda agent: flat([step_by_step(agent, one) for one in EPISODES])
    )
    sizes = (1, 400, 1 << 20) if control is None else (400,)  # batches of one, some and all episodes
    for batch_tokens in sizes:
        batched = under(control, replace(agent, batch_tokens=batch_tokens))
        assert decoded_ids(batched, monkeypatch, lambda agent: flat(agent.answer_episodes(EPISODES))) == stepwise


def test_the_tokens_equal_those_of_generate(model, monkeypatch):
    """The reference is `generate` of transformers."""
    _, ids = decoded_ids(make_agent(model), monkeypatch, lambda agent: agent.answer_episodes(EPISODES[:5]))
    generated = [generate(model, episode, number) for episode in EPISODES[:5] for number in range(len(episode))]
    assert ids == generated


def generate(model, episode, number: int) -> list[int]:
    sentence = tiny.sentences(WORDS).prompt(Episode("", "", episode.goal, episode.steps[: number + 1]))
    batch = collate([sentence])
    with torch.inference_mode():
        embeddings, _ = model.embed(batch["input_ids"], batch["screens"])
        tokens = model.language_model.generate(
            inputs_embeds=embeddings,
            attention_mask=torch.ones(embeddings.shape[:2], dtype=torch.int64),
            do_sample=False,
            max_new_tokens=tiny.LANGUAGE.max_tokens,
            eos_token_id=WORDS.eos_token_id,
            pad_token_id=WORDS.pad_token_id,
        )
    return tokens[0].tolist()


def test_a_batch_needs_one_prefill(model, monkeypatch):
    agent = make_agent(model, batch_tokens=1 << 20)
    prefill, prefills = agent.decoder.prefill, []
    monkeypatch.setattr(agent.decoder, "prefill", lambda sentences: prefills.append(1) or prefill(sentences))
    agent.answer_episodes(EPISODES)
    assert prefills == [1]


def test_constrained_answers_are_actions_and_free_answers_that_are_actions_are_unchanged(model):
    """Unchanged if they are within the limit; near it, constrained decoding closes typed text earlier."""
    agents = make_agent(model), make_agent(model, constrained=True)
    free, constrained = (flat(agent.answer_episodes(EPISODES)) for agent in agents)
    assert all(answer.action is not None for answer in constrained)
    assert all(kept == answer for answer, kept in zip(free, constrained, strict=True) if answer.action is not None)


def test_some_free_answers_are_not_actions():
    assert any(answer.action is None for answer in flat(make_agent(trained(0)).answer_episodes(EPISODES)))


def test_a_step_answered_by_the_prefill_needs_no_forward_pass(model, monkeypatch):
    calls = []
    step = LlamaViTDecoder.step
    monkeypatch.setattr(LlamaViTDecoder, "step", lambda *arguments: (calls.append(1), step(*arguments))[1])
    answers = flat(make_agent(model).answer_episodes(EPISODES))
    assert all(isinstance(answer.usage.from_prefill, bool) for answer in answers)
    assert bool(calls) == any(not answer.usage.from_prefill for answer in answers)
    assert len(calls) < tiny.LANGUAGE.max_tokens


def test_a_model_that_predicts_the_demonstration_answers_it_by_the_prefill():
    agent = make_agent(trained(60))
    assert all(answer.usage.from_prefill for answer in agent.answer_episodes([EPISODES[0]])[0])
    assert not all(answer.usage.from_prefill for answer in make_agent(trained(0)).answer_episodes([EPISODES[0]])[0])


def test_token_counts_of_batched_and_single_answers_are_equal(model):
    agent = make_agent(model)
    batched = [answer.usage.tokens for answer in flat(agent.answer_episodes(EPISODES[:2]))]
    stepwise = [answer.usage for one in EPISODES[:2] for answer in step_by_step(agent, one)]
    assert batched == [usage.tokens for usage in stepwise]
    assert all(usage.calls == 1 and usage.seconds > 0 for usage in stepwise)


@given(st.lists(st.integers(1, 50)), st.integers(1, 200))
def test_every_sentence_is_in_one_batch_and_batches_keep_to_the_budget(lengths, budget):
    result = batches(lengths, budget)
    assert sorted(index for batch in result for index in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[index] for index in batch) <= budget for batch in result if len(batch) > 1)


def test_some_answers_agree_with_the_demonstration_and_some_deviate():
    """Otherwise the comparisons with answers step by step would prove less."""
    agreeing = [
        answer.action is not None and answer.text == tiny.LANGUAGE.encode(step.action)
        for make in MODELS.values()
        for answer, step in zip(make_agent(make()).answer_episodes([EPISODES[0]])[0], EPISODES[0].steps, strict=True)
    ]
    assert any(agreeing)
    assert not all(agreeing)


def test_one_prefill_processes_all_episodes_and_encodes_each_screen_once(model, monkeypatch):
    calls = []
    see = type(model).see
    monkeypatch.setattr(type(model), "see", lambda self, screens: (calls.append(len(screens)), see(self, screens))[1])
    agent = make_agent(model, batch_tokens=1 << 20)
    prefill, prefills = agent.decoder.prefill, []
    monkeypatch.setattr(
        agent.decoder, "prefill", lambda sentences: prefills.append(len(sentences)) or prefill(sentences)
    )
    agent.answer_episodes(EPISODES)
    assert prefills == [len(EPISODES)]
    assert sum(calls) == sum(len(episode) for episode in EPISODES)


def test_an_answer_over_the_token_limit_is_truncated_and_not_an_action(monkeypatch):
    """An endless answer is a wrong answer, not an exception."""
    model, long_text = tiny.model(len(WORDS)), "q" * 40
    monkeypatch.setattr(BinnedLanguage, "max_tokens", 12)
    forever = WORDS.convert_tokens_to_ids("q")
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        model.language_model.model.norm.weight.zero_()
        model.get_output_embeddings().bias = torch.nn.Parameter(torch.zeros(len(WORDS)))
        model.get_output_embeddings().bias[forever] = 1.0
    agent = make_agent(model)
    for answer in [*agent.answer_episodes([EPISODES[0]])[0], *step_by_step(agent, EPISODES[0])]:
        assert answer.action is None
        assert answer.text == "q" * 12
    steps = (replace(EPISODES[0].steps[0], action=Action.type_text(long_text)),)
    assert agent.answer_episodes([replace(EPISODES[0], steps=steps)])[0][0].action is None


def test_an_answer_that_agrees_with_a_demonstration_over_the_limit_is_truncated_too(monkeypatch):
    """The token limit also applies to an answer from the prefill."""
    steps = tuple(
        replace(step, action=Action.type_text("abcdefghijklmnopqrstuvwxyz")) for step in EPISODES[0].steps[:2]
    )
    episode = replace(EPISODES[0], steps=steps)
    agent = make_agent(fitted(60, [episode]))
    assert agent.answer_episodes([episode])[0][0].action == steps[0].action
    monkeypatch.setattr(BinnedLanguage, "max_tokens", 12)
    assert agent.answer_episodes([episode])[0] == step_by_step(agent, episode)
    assert agent.answer_episodes([episode])[0][0].action is None


def test_an_answer_has_the_box_of_the_element_that_it_names(monkeypatch):
    """Two halves cover the chosen element, so that another one is under the tap."""
    boxes = (0.5, 0.5, 0.2, 0.2), (0.5, 0.5, 0.1, 0.2), (0.6, 0.5, 0.1, 0.2)
    screen = replace(recorded_screen(EPISODES[0], 0), elements=tuple(UiElement(box) for box in boxes))
    agent = make_agent(MODELS["random"]())
    agent.sentences = replace(agent.sentences, language=ElementIndexLanguage())
    monkeypatch.setattr(TrajectorySentences, "text", lambda self, ids: '{"action_type": "click", "idx": 0}')
    answer = agent.act("goal", [], screen)
    assert (answer.action, answer.box) == (Action.tap(0.6, 0.6), boxes[0])
    assert make_agent(agent.model).act("goal", [], screen).box is None


def test_the_token_limit_is_enough_for_ordinary_actions():
    text = BinnedLanguage(1000).encode(Action.type_text("what is the weather like in São Paulo tomorrow morning?"))
    assert len(WORDS(text).input_ids) < tiny.LANGUAGE.max_tokens


def test_under_grey_screens_answers_do_not_depend_on_screens(model):
    agent = under("grey_screens", make_agent(model))
    white = np.full((*tiny.SCREEN, 3), 255, np.uint8)
    other = replace(EPISODES[0], steps=tuple(replace(step, screenshot=white) for step in EPISODES[0].steps))
    assert agent.answer_episodes([EPISODES[0]]) == agent.answer_episodes([other])


def test_the_control_grey_screens_equals_that_of_training(model):
    """`data.control: grey_screens` blanks screens after resizing; the control of an agent greys their pixels before."""
    grey = VlmAgent(model, WORDS, tiny.sentences(WORDS, grey=True))
    assert under("grey_screens", make_agent(model)).answer_episodes(EPISODES) == grey.answer_episodes(EPISODES)


def test_without_history_answers_do_not_depend_on_earlier_steps(model):
    agent = under("no_history", make_agent(model))
    step = EPISODES[0].steps[2]
    alone = make_agent(model).act(EPISODES[0].goal, (), step.screen)
    assert agent.act(EPISODES[0].goal, demonstrated(EPISODES[1], 3), step.screen) == alone
    assert agent.answer_episodes([EPISODES[0]])[0][2] == alone


def test_screens_of_any_size_are_answered(model):
    agent = make_agent(model)
    assert len(agent.answer_episodes([tiny.episode(5, size=(120, 54))])[0]) == len(tiny.ACTIONS)


def test_mixed_precision_answers_every_step(model):
    agent = make_agent(model, bf16=True)
    assert [len(answers) for answers in agent.answer_episodes(EPISODES)] == [len(episode) for episode in EPISODES]


def test_an_answer_beyond_the_models_context_is_marked_in_both_ways_of_asking(model, monkeypatch):
    agent, (*_, longest) = make_agent(model), EPISODES
    lengths = [sum(answer.usage.tokens) for answer in step_by_step(agent, longest)]
    context = sorted(lengths)[len(lengths) // 2]
    monkeypatch.setattr(model.config.get_text_config(), "max_position_embeddings", context)
    expected = [length > context for length in lengths]
    assert [answer.diagnostics.beyond_context for answer in step_by_step(make_agent(model), longest)] == expected
    assert [answer.diagnostics.beyond_context for answer in make_agent(model).answer_episodes([longest])[0]] == expected
    assert 0 < sum(expected) < len(expected)


def test_the_module_of_the_agent_can_be_imported_first():
    # With a CPU build of torch, peft and parts of transformers cannot: see models/__init__.py.
    assert subprocess.run([sys.executable, "-c", "import vlm_agent.agents.vlm.agent"], check=False).returncode == 0


QWEN2_5_VL_7B = DecoderShape(28, 3584, 28, 4, 128, 18944, 152_064)


def test_a_batch_is_as_large_as_half_of_the_free_memory_allows(model):
    """The cache of Qwen2.5-VL-7B alone takes 57 KB a token."""
    token = bytes_of_token(QWEN2_5_VL_7B, bf16=True)
    assert bytes_of_token(QWEN2_5_VL_7B, bf16=False) == 2 * token
    assert 2 * 57_344 < token < 1_000_000
    sizes = [fitting_tokens(free, token) for free in (0, 8 << 30, 60 << 30, 125 << 30)]
    assert sizes == [1, 4096, 32_768, 65_536]
    assert tokens_at_once(model, bf16=False) == BATCH_TOKENS  # on a CPU
