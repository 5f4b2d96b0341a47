"""What an annotation will cost, estimated before the first call from a few episodes."""

from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.cost import Expense
from vlm_agent.annotation.annotator import PLAN, TYPICAL, Annotator
from vlm_agent.annotation.prompts import Messages
from vlm_agent.datasets.shards.dataset import ShardDataset

SAMPLED = 5
"""Episodes whose requests are written for the estimate."""

_WORDS = {"screen": 75, "action": 8, "think": 45, "result": 45, PLAN: 60}
_TOKENS_PER_WORD = 1.4
"""Typical lengths of replies, from Android in the Zoo: descriptions of 80 to 120 words, thoughts of 30 to 70, results
of 20 to 80. The shipped prompts ask for somewhat less. A plan of six lines has about 60 words."""


def estimate(dataset: ShardDataset, episodes: Sequence[int], annotator: Annotator, calls: Calls, limit: int) -> Expense:
    """The calls and tokens of these episodes; requests that are on disk cost nothing. `limit`: tokens of a reply."""
    sampled = sorted({episodes[len(episodes) * number // SAMPLED] for number in range(SAMPLED)})
    total, steps = Expense(), 0

    def ask(name: str, messages: Messages) -> str:
        nonlocal total
        if (reply := calls.stored(messages, limit)) is not None:
            return reply.answer
        total += calls.expected(messages, limit, min(round(_WORDS[name] * _TOKENS_PER_WORD), limit))
        return TYPICAL if name == PLAN else " ".join(["word"] * _WORDS[name])

    sampler = replace(annotator, ask=ask)
    for index in sampled:
        steps += len(sampler.annotate(dataset[index]))
    return total.times(sum(len(dataset.screen_sizes[index]) for index in episodes) / steps)
