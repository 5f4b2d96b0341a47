"""Offline evaluation in bfloat16: steps per second, with one prefill per batch of 8-step episodes.

`prefill`: an agent that always agrees with the demonstration, so the prefill alone answers every step; the time
includes dividing screens into patches and moving them to the GPU. `decoding`: the opposite case, random weights that
never agree, so every step is decoded to 64 tokens.
"""

import argparse
from dataclasses import replace

import torch

from benchmarks.gpu.timing import wait_for
from benchmarks.gpu.train_step import DTYPE, add_shape, prepare
from benchmarks.training.measure import Clock, peak_resident
from vlm_agent.agents.vlm.agent import BATCH_TOKENS, VlmAgent
from vlm_agent.episodes import Episode
from vlm_agent.models.decoding import Decoder, Prefill
from vlm_agent.sentences import IGNORED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shape(parser)
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, metavar="N", help="tokens per prefill")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="repetitions of all episodes")


class Agreeing:
    """A decoder that computes like `decoder` and returns the demonstrated tokens as the most likely ones."""

    def __init__(self, decoder: Decoder):
        self.begin, self.step, self._prefill = decoder.begin, decoder.step, decoder.prefill

    def prefill(self, sentences) -> Prefill:
        learned = [label for sentence in sentences for label in sentence.labels if label != IGNORED]
        return replace(self._prefill(sentences), best=learned)


def measure(options: argparse.Namespace) -> dict:
    run, episodes = prepare(options)
    model = run.model.eval()
    model.get_base_model().language_model.set_attn_implementation("sdpa")
    tokenizer = run.writer.tokenizer
    agent = VlmAgent(model, tokenizer, run.writer, bf16=torch.bfloat16 == DTYPE, batch_tokens=options.batch_tokens)
    agreeing = replace(agent, decoder=Agreeing(agent.decoder))
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = {
        "prefill": timed(agreeing, episodes, options.rounds, options.device),
        "decoding": timed(agent, episodes[: max(1, len(episodes) // 3)], 1, options.device),
    }
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else peak_resident()
    return found | {"peak_bytes": peak}


def timed(agent: VlmAgent, episodes: list[Episode], rounds: int, device: str) -> dict:
    agent.answer_episodes(episodes[:2])
    clock = Clock()
    wait_for(device)
    with clock:
        for _ in range(rounds):
            answers = agent.answer_episodes(episodes)
            wait_for(device)
    steps = rounds * sum(map(len, episodes))
    from_prefill = [answer.usage.from_prefill for episode in answers for answer in episode]
    tokens = rounds * sum(len(sentence) for episode in episodes for sentence in [agent.sentences.build(episode)])
    return {
        "steps_per_second": steps / clock.seconds,
        "tokens_per_second": tokens / clock.seconds,
        "from_prefill": sum(from_prefill) / len(from_prefill),
    }
