"""Greedy decoding of many sources together, for encoder-decoder models.

Every step has a source of its own, so that no answer shares keys and values with another. Sources are padded to the
longest of their batch, and every answer writes one token per forward pass. Rows of finished answers are dropped.

The tokens equal those of `greedy.decode_sentence`, except for ties broken by rounding, because the order of summation
depends on the batch.
"""

from collections.abc import Sequence
from functools import partial

import torch

from vlm_agent.agents.decoding.greedy import Choice, Limits
from vlm_agent.models.decoding import SourceDecoder
from vlm_agent.sentences import Sentence


def answer_sources(
    decoder: SourceDecoder, sentences: Sequence[Sentence], choose: Choice, limits: Limits
) -> list[list[int]]:
    """The tokens of the answer to each source, the end mark included."""
    batch = decoder.begin_batch(sentences)
    logits = batch.logits
    answers: list[list[int]] = [[] for _ in sentences]
    rows = list(range(len(sentences)))  # the sentence of each row of the batch
    while True:
        for row, (number, best) in enumerate(zip(rows, logits.argmax(-1).tolist(), strict=True)):
            answers[number].append(choose(answers[number], best, partial(_row, logits, row)))
        unfinished = [row for row, number in enumerate(rows) if not limits.reached(answers[number])]
        if not unfinished:
            return answers
        if len(unfinished) < len(rows):
            batch.keep(unfinished)
            rows = [rows[row] for row in unfinished]
        ids = torch.tensor([answers[number][-1] for number in rows], device=logits.device)
        logits = decoder.step_batch(ids, batch)


def _row(logits: torch.Tensor, row: int) -> torch.Tensor:
    return logits[row]
