"""The learner scores exactly the tokens that were sampled, after exactly what the agent read."""

import random
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from helpers import tiny
from helpers.models import families

from vlm_agent.agents import Asked, Turn
from vlm_agent.agents.decoding.sampling import SampledAnswer, Sampling
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import recorded_screen
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.reinforcement.rollouts import RecordedAnswer
from vlm_agent.reinforcement.sentences import Scored, collated, dealt, scored
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.image_sizes import CachedScreens

TEMPERATURE = 0.7
EPISODES = [tiny.episode(number) for number in range(3)]


def agent_of(name: str) -> VlmAgent:
    family = families.family(name)
    sentences = replace(family.sentences, screens=CachedScreens(family.sentences.screens))
    return VlmAgent(family.model.eval(), family.words, sentences)


def played(agent: VlmAgent) -> list[Scored]:
    """The sentences of three phones that show recorded screens and perform the recorded actions."""
    sampling = Sampling(TEMPERATURE, "seed")
    together = replace(agent, sampling=sampling).together()
    histories: dict[str, list[Turn]] = {episode.id: [] for episode in EPISODES}
    prompts: dict[str, list[Sentence]] = {episode.id: [] for episode in EPISODES}
    for step in range(3):
        asked = [Asked(one.goal, tuple(histories[one.id]), recorded_screen(one, step)) for one in EPISODES]
        for episode, question, answer in zip(EPISODES, asked, together.act(asked), strict=True):
            prompts[episode.id].append(agent.prompt(*question).sentence)
            histories[episode.id].append(Turn(question.screen, answer, episode.steps[step].action))
    found = []
    for episode in EPISODES:
        drawn = [sampling.answers[episode.id, step] for step in range(3)]
        answers = [RecordedAnswer(one.ids, one.log_probabilities, fmean(one.entropies), "") for one in drawn]
        found += scored(prompts[episode.id], answers, [NO_ACTION] * 3, [1.0, -1.0, 0.5])
    return found


def learned(agent: VlmAgent, row: list[Scored], bf16: bool = False) -> torch.Tensor:
    """The log-probabilities of the learner for the sampled tokens of a row."""
    batch = collated(row, families.processor_of(agent.model.config), TEMPERATURE, (0.2, 0.28))
    inputs = {name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        return -agent.model(**inputs).token_losses


def drawn_in(row: list[Scored]) -> torch.Tensor:
    return torch.tensor(
        [
            value
            for one in row
            for value, label in zip(one.log_probabilities, one.sentence.labels, strict=True)
            if label != IGNORED
        ]
    )


@pytest.mark.parametrize("name", families.NAMES)
def test_learner_and_sampler_agree_in_float32(name):
    agent = agent_of(name)
    row = played(agent)
    assert (learned(agent, row) - drawn_in(row)).abs().mean() <= 1e-4
    assert drawn_in(row).numel() == sum(one.sentence.supervised for one in row) > 40


def test_learner_and_sampler_agree_in_bfloat16():
    agent = replace(agent_of("llama_vit"), bf16=True)
    row = played(agent)
    assert (learned(agent, row, bf16=True) - drawn_in(row)).abs().mean() <= 0.02


def sentence_of(ids, prompt=()) -> Sentence:
    sentence = Sentence()
    sentence.read([*prompt, *ids])
    return sentence


def test_an_answer_that_the_history_repeats_is_scored_inside_it_and_every_other_one_in_its_own_sentence():
    prompts = [sentence_of([1]), sentence_of([1, 7, 2]), sentence_of([1, 7, 2, 9, 3])]
    answers = [RecordedAnswer([id_], [-float(id_)], 0.0, "") for id_ in (7, 8, 5)]
    trunk, branch = scored(prompts, answers, [0, 1, 2], [0.1, 0.2, 0.3])
    assert trunk.sentence.input_ids == [1, 7, 2, 9, 3, 5]
    assert trunk.sentence.labels == [IGNORED, 7, IGNORED, IGNORED, IGNORED, 5]
    assert trunk.advantages == [0, 0.1, 0, 0, 0, 0.3]
    assert branch.sentence.input_ids == [1, 7, 2, 8]
    assert branch.sentence.labels == [IGNORED] * 3 + [8]
    assert branch.log_probabilities[3] == -8
    assert [trunk.sentence.kinds[1], branch.sentence.kinds[3], trunk.sentence.kinds[5]] == [0, 1, 2]


def test_a_sampled_token_depends_on_seed_episode_and_step_alone():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))

    def draw(episode: str, step: int) -> list[int]:
        choice = Sampling(1.0, "0/1").of_step(episode, step)
        return [choice([], 0, lambda: logits) for _ in range(8)]

    assert draw("a", 0) == draw("a", 0)
    assert len({tuple(draw(episode, step)) for episode in "ab" for step in range(3)}) == 6


def test_tokens_are_drawn_with_their_probabilities_at_the_temperature():
    logits, counts = torch.tensor([1.0, 0.0, -1.0]), [0, 0, 0]
    choice = SampledAnswer(0.5, random.Random(0))
    for _ in range(4000):
        counts[choice([], 0, lambda: logits)] += 1
    expected = torch.softmax(logits / 0.5, -1)
    assert [count / 4000 for count in counts] == pytest.approx(expected.tolist(), abs=0.03)
    assert choice.log_probabilities[0] == pytest.approx(float(expected.log()[choice.ids[0]]))
    assert choice.entropies[0] == pytest.approx(float(-(expected * expected.log()).sum()))


def test_rows_hold_every_sentence_once_and_about_equally_many_tokens():
    sentences = [Scored.of_read(sentence_of(range(3 + number % 11))) for number in range(60)]
    rows = dealt(sentences, 8, "seed")
    assert sorted(id(one) for row in rows for one in row) == sorted(map(id, sentences))
    sizes = [sum(len(one.sentence) for one in row) for row in rows]
    assert max(sizes) - min(sizes) <= 13
    assert dealt(sentences, 8, "seed") == rows != dealt(sentences, 8, "other")
    assert [] in dealt(sentences[:3], 8, "seed")
