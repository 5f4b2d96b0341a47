"""One forward pass over many episodes says what an agent says step by step, token for token."""

import subprocess
import sys
from dataclasses import replace

import families
import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents import vlm
from vlm_agent.agents.llama_vit_reader import LlamaViTReader
from vlm_agent.agents.vlm import MAX_ACTION_TOKENS, VlmAgent, batches
from vlm_agent.episodes import Action, Episode
from vlm_agent.models.reading import llama_vit_rows
from vlm_agent.sentences import Sentence

WORDS = tiny.tokenizer()
LONG = Action.type_text("abcdefghijklmnopqrstuvwxyz" * 4)
"""More than an agent may say at once."""

EPISODES = [
    *(tiny.episode(number) for number in range(3)),
    tiny.episode(3, (Action.complete(),)),
    tiny.episode(4, (LONG, Action.tap(0.5, 0.5), LONG)),
    tiny.episode(5, tiny.ACTIONS[::-1] + tiny.ACTIONS),
]


def make_agent(model, grey: bool = False, remember: bool = True, **options) -> VlmAgent:
    return VlmAgent(model, WORDS, tiny.sentences(WORDS, grey), remember, **options)


def trained(steps: int, episodes=EPISODES[:1]):
    """A model that has seen some episodes so often that it agrees with some of them."""
    family = families.family("llama_vit")
    model = family.model.train()
    row = family.row(*[family.sentences.build(episode) for episode in episodes])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**row).loss.backward()
        optimizer.step()
    model.language_model.set_attn_implementation("sdpa")
    return model.eval()


MODELS = {
    "random": lambda: trained(0),
    "half trained": lambda: trained(25),
    "trained": lambda: trained(60),
    "all half": lambda: trained(50, EPISODES),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def step_by_step(agent: VlmAgent, episode) -> list:
    return [
        agent.act(episode.goal, episode.steps[:number], step.screenshot) for number, step in enumerate(episode.steps)
    ]


def said_ids(agent: VlmAgent, monkeypatch, speak) -> tuple[list, list]:
    """The answers of `speak`, and the token ids behind each."""
    ids = []
    plain = VlmAgent._answer
    monkeypatch.setattr(VlmAgent, "_answer", lambda self, said, *rest: (ids.append(said), plain(self, said, *rest))[1])
    answers = speak(agent)
    monkeypatch.undo()
    return answers, ids


def flat(answers: list[list]) -> list:
    return [answer for episode in answers for answer in episode]


@pytest.mark.parametrize("remember", [True, False], ids=["with history", "without"])
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
def test_episodes_at_once_are_the_same_tokens_as_step_by_step(model, remember, constrained, monkeypatch):
    agent = make_agent(model, remember=remember, constrained=constrained)
    stepwise = said_ids(agent, monkeypatch, lambda agent: flat([step_by_step(agent, one) for one in EPISODES]))
    for batch_tokens in (1, 400, 1 << 20):  # one by one, a few at once, all at once
        agent = replace(agent, batch_tokens=batch_tokens)
        assert said_ids(agent, monkeypatch, lambda agent: flat(agent.answer_episodes(EPISODES))) == stepwise


def test_the_tokens_are_those_of_generate(model, monkeypatch):
    """Of transformers' own, which knows nothing of all this."""
    _, ids = said_ids(make_agent(model), monkeypatch, lambda agent: agent.answer_episodes(EPISODES[:5]))
    generated = [generate(model, episode, number) for episode in EPISODES[:5] for number in range(len(episode))]
    assert ids == generated


def generate(model, episode, number: int) -> list[int]:
    sentences, sentence = tiny.sentences(WORDS), Sentence()
    sentence = sentences.build(Episode("", "", episode.goal, episode.steps[:number]))
    sentences.add_screen(sentence, episode.steps[number])
    batch = llama_vit_rows([sentence])
    with torch.inference_mode():
        embeddings, _ = model.embed(batch["input_ids"], batch["screens"])
        said = model.language_model.generate(
            inputs_embeds=embeddings,
            attention_mask=torch.ones(embeddings.shape[:2], dtype=torch.int64),
            do_sample=False,
            max_new_tokens=MAX_ACTION_TOKENS,
            eos_token_id=WORDS.eos_token_id,
            pad_token_id=WORDS.pad_token_id,
        )
    return said[0].tolist()


def test_both_ways_at_once_are_each_way_by_itself(model):
    agent = make_agent(model)
    free, constrained = agent.answer_both_ways(EPISODES)
    assert free == agent.answer_episodes(EPISODES)
    assert constrained == replace(agent, constrained=True).answer_episodes(EPISODES)


def test_constrained_answers_are_actions_and_those_that_were_stay_as_they_were(model):
    """Of answers that end in time anyhow; near the limit, constrained decoding closes typed text earlier."""
    free, constrained = (flat(way) for way in make_agent(model).answer_both_ways(EPISODES))
    assert all(answer.action is not None for answer in constrained)
    assert all(kept == answer for answer, kept in zip(free, constrained, strict=True) if answer.action is not None)


def test_some_answers_do_need_constraint():
    assert any(answer.action is None for answer in flat(make_agent(trained(0)).answer_episodes(EPISODES)))


def test_a_settled_step_needs_no_call_of_the_model(model, monkeypatch):
    calls = []
    step = LlamaViTReader.step
    monkeypatch.setattr(LlamaViTReader, "step", lambda *given: (calls.append(1), step(*given))[1])
    answers = flat(make_agent(model).answer_episodes(EPISODES))
    assert all(isinstance(answer.settled, bool) for answer in answers)
    assert bool(calls) == any(not answer.settled for answer in answers)
    assert len(calls) < MAX_ACTION_TOKENS


def test_a_model_that_knows_the_demonstration_settles_it():
    agent = make_agent(trained(60))
    assert all(answer.settled for answer in agent.answer_episode(EPISODES[0]))
    assert not all(answer.settled for answer in make_agent(trained(0)).answer_episode(EPISODES[0]))


@given(st.lists(st.integers(1, 50)), st.integers(1, 200))
def test_batches_hold_every_sentence_once_and_keep_to_the_budget(lengths, budget):
    found = batches(lengths, budget)
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[index] for index in batch) <= budget for batch in found if len(batch) > 1)


def test_both_kinds_of_step_occur():
    """The test above means something: some of its answers agree with the demonstration and some leave it."""
    agreeing = [
        answer.action is not None and answer.text == tiny.LANGUAGE.render(step.action)
        for make in MODELS.values()
        for answer, step in zip(make_agent(make()).answer_episode(EPISODES[0]), EPISODES[0].steps, strict=True)
    ]
    assert any(agreeing)
    assert not all(agreeing)


def test_one_forward_pass_reads_all_episodes_and_each_screen_is_looked_at_once(model, monkeypatch):
    calls = []
    see = type(model).see
    monkeypatch.setattr(type(model), "see", lambda self, screens: (calls.append(len(screens)), see(self, screens))[1])
    agent = make_agent(model, batch_tokens=1 << 20)
    prefill, prefills = agent.reader.prefill, []
    monkeypatch.setattr(
        agent.reader, "prefill", lambda sentences: prefills.append(len(sentences)) or prefill(sentences)
    )
    agent.answer_episodes(EPISODES)
    assert prefills == [len(EPISODES)]
    assert sum(calls) == sum(len(episode) for episode in EPISODES)


def test_an_answer_is_cut_off_and_means_nothing(monkeypatch):
    """Cut off in the middle of a word it would never end, an answer is wrong; it is no exception."""
    model, long_text = tiny.model(len(WORDS)), "q" * 40
    monkeypatch.setattr(vlm, "MAX_ACTION_TOKENS", 12)
    forever = WORDS.convert_tokens_to_ids("q")
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        model.language_model.model.norm.weight.zero_()
        model.get_output_embeddings().bias = torch.nn.Parameter(torch.zeros(len(WORDS)))
        model.get_output_embeddings().bias[forever] = 1.0
    agent = make_agent(model)
    for answer in [*agent.answer_episode(EPISODES[0]), *step_by_step(agent, EPISODES[0])]:
        assert answer.action is None
        assert answer.text == "q" * 12
    steps = (replace(EPISODES[0].steps[0], action=Action.type_text(long_text)),)
    assert agent.answer_episode(replace(EPISODES[0], steps=steps))[0].action is None


def test_a_demonstrated_action_that_is_too_long_to_say_is_cut_off_alike(monkeypatch):
    """Agreeing token by token with twenty-six letters does not let an agent say more than it may."""
    steps = tuple(
        replace(step, action=Action.type_text("abcdefghijklmnopqrstuvwxyz")) for step in EPISODES[0].steps[:2]
    )
    episode = replace(EPISODES[0], steps=steps)
    agent = make_agent(trained(60, [episode]))
    assert agent.answer_episode(episode)[0].action == steps[0].action
    monkeypatch.setattr(vlm, "MAX_ACTION_TOKENS", 12)
    assert agent.answer_episode(episode) == step_by_step(agent, episode)
    assert agent.answer_episode(episode)[0].action is None


def test_the_bound_holds_every_ordinary_action():
    text = BinnedLanguage(1000).render(Action.type_text("what is the weather like in São Paulo tomorrow morning?"))
    assert len(WORDS(text).input_ids) < vlm.MAX_ACTION_TOKENS


def test_a_blind_agent_says_the_same_on_any_screen(model):
    agent = make_agent(model, grey=True)
    white = np.full((*tiny.SCREEN, 3), 255, np.uint8)
    other = replace(EPISODES[0], steps=tuple(replace(step, screenshot=white) for step in EPISODES[0].steps))
    assert agent.answer_episode(EPISODES[0]) == agent.answer_episode(other)


def test_without_history_what_came_before_changes_nothing(model):
    agent = make_agent(model, remember=False)
    step = EPISODES[0].steps[2]
    alone = agent.act(EPISODES[0].goal, (), step.screenshot)
    assert agent.act(EPISODES[0].goal, EPISODES[1].steps, step.screenshot) == alone
    assert agent.answer_episode(EPISODES[0])[2] == alone


def test_screens_of_any_size_are_read(model):
    agent = make_agent(model)
    assert len(agent.answer_episode(tiny.episode(5, size=(120, 54)))) == len(tiny.ACTIONS)


def test_mixed_precision_answers_every_step(model):
    agent = make_agent(model, bf16=True)
    assert [len(answers) for answers in agent.answer_episodes(EPISODES)] == [len(episode) for episode in EPISODES]


def test_the_senses_can_be_taken_away():
    model = tiny.model(len(WORDS))
    agent = make_agent(model, bf16=True)
    assert agent.on_grey_screens() == make_agent(model, grey=True, bf16=True)
    assert agent.without_history() == make_agent(model, remember=False, bf16=True)


def test_the_agent_can_be_imported_first():
    # peft and parts of transformers cannot be, on a CPU build of torch: see models/torchvision_on_cpu.py.
    assert subprocess.run([sys.executable, "-c", "import vlm_agent.agents.vlm"], check=False).returncode == 0
