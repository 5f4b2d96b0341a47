"""Offline evaluation in bfloat16: steps per second of 8-step episodes, which loader processes prepare ahead.

`prefill`: an agent that always agrees with the demonstration, so the prefill alone answers every step; the time
includes collating screens and moving them to the GPU. `decoding`: the opposite case, random weights that never agree,
so every step is decoded to 64 tokens. `agreement`: the share of learned tokens at which the most likely token equals
that of the adapter apart in float32, after the same history.
`--undo` measures without one of the package's faster operations: `merged` (the adapter stays apart), `graphs` (each
kernel of a step is launched by itself), `heads` (key heads are repeated for the queries that share them), `varlen` (one
attention call per sentence and window).
"""

import argparse
from contextlib import ExitStack
from dataclasses import replace

import torch

from benchmarks.gpu.timing import wait_for
from benchmarks.gpu.train_step import DTYPE, add_shape, prepare
from benchmarks.gpu.without_values import replaced
from benchmarks.training.measure import Clock, peak_resident
from vlm_agent.agents.vlm.agent import VlmAgent, tokens_at_once
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.offline.loading import PartWork, default_workers, loaded_parts
from vlm_agent.models import attention, decoding
from vlm_agent.models.decoding import Decoder, Prefill
from vlm_agent.models.weights.adapters import merge_adapter
from vlm_agent.models.weights.merge import float32_arithmetic
from vlm_agent.sentences import IGNORED

COMPARED = 2
"""Episodes of `agreement`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shape(parser)
    parser.add_argument("--batch-tokens", type=int, metavar="N", help="tokens per prefill (default: by the memory)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="repetitions of all episodes")
    parser.add_argument("--workers", type=int, default=default_workers(), metavar="N", help="loader processes")
    parser.add_argument(
        "--undo", nargs="+", choices=["merged", *UNDO], default=[], help="faster operations to leave out"
    )


class Agreeing:
    """A decoder that computes like `decoder` and returns the demonstrated tokens as the most likely ones."""

    def __init__(self, decoder: Decoder):
        self.begin, self.step, self._prefill = decoder.begin, decoder.step, decoder.prefill
        self.first_position = decoder.first_position
        self.prepare_screen = getattr(decoder, "prepare_screen", None)

    def prefill(self, sentences) -> Prefill:
        learned = [label for sentence in sentences for label in sentence.labels if label != IGNORED]
        return replace(self._prefill(sentences), best=learned)


def measure(options: argparse.Namespace) -> dict:
    with ExitStack() as stack:
        for name in options.undo:
            if name in UNDO:
                stack.enter_context(UNDO[name]())
        return _measure(options)


def _measure(options: argparse.Namespace) -> dict:
    run, episodes = prepare(options)
    is_bf16 = torch.bfloat16 == DTYPE
    apart = run.model.eval()
    for name, weight in apart.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)  # zeros at the start of a training
    sentences = [run.writer.build(episode) for episode in episodes[:COMPARED]]
    with float32_arithmetic(apart):
        exact = best_tokens(VlmAgent(apart, run.writer.tokenizer, run.writer), sentences)
    rounded = best_tokens(VlmAgent(apart, run.writer.tokenizer, run.writer, is_bf16), sentences)
    model = apart if "merged" in options.undo else merge_adapter(apart)
    size = options.batch_tokens
    size = tokens_at_once(model, is_bf16) if size is None else size
    agent = VlmAgent(model, run.writer.tokenizer, run.writer, is_bf16, batch_tokens=size)
    merged = best_tokens(agent, sentences)
    agreeing = replace(agent, decoder=Agreeing(agent.decoder))
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = {
        "batch_tokens": size,
        "agreement": {
            "tokens": len(exact),
            "adapter_apart": share_equal(exact, rounded),
            "as_evaluated": share_equal(exact, merged),
        },
        "prefill": timed(agreeing, episodes, options.rounds, options),
        "decoding": timed(agent, episodes[: max(1, len(episodes) // 3)], 1, options),
    }
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else peak_resident()
    return found | {"peak_bytes": peak}


def repeated_heads(query, key, value, mask, scaling) -> torch.Tensor:
    repeated = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    attended = torch.nn.functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=scaling)
    return attended.transpose(1, 2)


UNDO = {
    "graphs": lambda: replaced(decoding, can_replay=lambda device: False),
    "heads": lambda: replaced(attention, _behind_cache=repeated_heads),
    "varlen": lambda: replaced(attention, can_run_kernel=lambda query, dropout=0.0: False),
}
"""Name of a faster operation → what runs without it; `merged` is a choice of the model."""


def best_tokens(agent: VlmAgent, sentences: list) -> list[int]:
    with torch.inference_mode(), agent.precision():
        return [token for sentence in sentences for token in agent.decoder.prefill([sentence]).best]


def share_equal(first: list[int], second: list[int]) -> float:
    return sum(map(int.__eq__, first, second)) / len(first)


class InMemory:
    """Episodes as a data set of `loaded_parts`."""

    def __init__(self, episodes: list[Episode]):
        self.episodes, self.ids, self.directory = episodes, [episode.id for episode in episodes], "memory"

    def __getitem__(self, index: int) -> Episode:
        return self.episodes[index]


def timed(agent: VlmAgent, episodes: list[Episode], rounds: int, options: argparse.Namespace) -> dict:
    """The first part warms up: as many episodes as the largest batch, so that later ones find their memory."""
    work = [PartWork(number, range(len(episodes)), ("agent",)) for number in range(rounds + 1)]
    clock, from_prefill = Clock(), []
    with loaded_parts(InMemory(episodes), work, {"agent": agent.preparation()}, options.workers) as parts:
        answered(agent, next(parts))
        wait_for(options.device)
        with clock:
            for part in parts:
                from_prefill += [answer.usage.from_prefill for answers in answered(agent, part) for answer in answers]
            wait_for(options.device)
    steps = rounds * sum(map(len, episodes))
    tokens = rounds * sum(len(agent.sentences.build(episode)) for episode in episodes)
    return {
        "steps_per_second": steps / clock.seconds,
        "tokens_per_second": tokens / clock.seconds,
        "from_prefill": sum(from_prefill) / len(from_prefill),
    }


def answered(agent: VlmAgent, part) -> list[list]:
    return agent.answer_prepared(part.prepared["agent"]) if part.prepared else agent.answer_episodes(part.episodes)
