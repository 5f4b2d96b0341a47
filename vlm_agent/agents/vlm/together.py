"""One agent on several phones: their steps are read and decoded in common forward passes.

`VlmAgent.act` reads the whole history at every step. Here every phone has a cache that grows by the last action and the
new screen. Caches of unequal lengths are read side by side, without padding (`CausalDecoder.read_on`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from vlm_agent.agents.agent import Answer, Asked, Usage
from vlm_agent.agents.decoding.greedy import decode_together
from vlm_agent.agents.vlm.agent import Prompt, VlmAgent, batches
from vlm_agent.models.decoding import CausalDecoder, ReadSentence

TOKENS_AT_ONCE = 2048
"""New tokens of all phones in a forward pass; longer rows are not faster on a CPU."""


@dataclass
class VlmTogether:
    """`ActsTogether` of an agent. Tokens equal those of its `act`, except for ties that rounding breaks."""

    agent: VlmAgent
    decoder: CausalDecoder
    _read: dict[str, ReadSentence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agent = replace(self.agent, sentences=self.agent.preparation().sentences)

    def act(self, asked: Sequence[Asked]) -> list[Answer]:
        start = time.perf_counter()
        phones = [one.screen.episode for one in asked]
        self._read = {phone: self._read.get(phone, ReadSentence()) for phone in phones}
        prompts = [self.agent.prompt(*one) for one in asked]
        written: dict[int, list[int]] = {}
        with torch.inference_mode(), self.agent.precision():
            logits = self._logits(prompts, [self._read[phone] for phone in phones])
            for agent in {id(prompt.agent): prompt.agent for prompt in prompts}.values():
                own = [number for number, prompt in enumerate(prompts) if prompt.agent is agent]
                read = [self._read[phones[number]] for number in own]
                first = torch.stack([logits[number] for number in own])
                choices = [prompts[number].choice for number in own]
                answers = decode_together(self.decoder, read, first, choices, agent.limits)
                written |= zip(own, answers, strict=True)
        seconds = (time.perf_counter() - start) / len(asked)
        return [
            prompt.answer(written[number], Usage(len(prompt.sentence), len(written[number]), 1, seconds))
            for number, prompt in enumerate(prompts)
        ]

    def _logits(self, prompts: Sequence[Prompt], read: Sequence[ReadSentence]) -> dict[int, torch.Tensor]:
        rests = [
            one.rest_of(prompt.sentence, self.decoder.first_position(len(prompt.sentence)))
            for one, prompt in zip(read, prompts, strict=True)
        ]
        found: dict[int, torch.Tensor] = {}
        for batch in batches([len(rest) for rest in rests], TOKENS_AT_ONCE):
            logits = self.decoder.read_on([rests[number] for number in batch], [read[number] for number in batch])
            found |= zip(batch, logits, strict=True)
        return found
