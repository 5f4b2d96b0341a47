"""Greedy decoding of all steps of many demonstrations after one prefill.

The history is teacher-forced, so one forward pass over a whole trajectory (`prefill`) computes the next-token
prediction after every token of every demonstrated action. While predictions equal the demonstrated tokens, the prefill
has already processed the tokens of the answer. A step that never deviates, or deviates with its last token, is answered
by the prefill alone. Every other step is decoded from the KV cache up to the deviation. These steps are decoded
together, one token of each per forward pass: they share the cached history of their sentence, and an attention mask
restricts each to the history before its step and to its own tokens.

The tokens equal those of decoding step by step, except for ties broken by rounding, because the order of summation
depends on the batch. No such tie was observed in float32; they occur in mixed precision.

The memory is that of the KV cache of the sentences, and at most `max_tokens` more positions per answer.

Encoder-decoder models have a source for each step, so that no answer shares keys and values with another
(`answer_sources`).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from vlm_agent.models.decoding import Decoder, Prefill, SourceDecoder
from vlm_agent.sentences import ACTION_ROLE, IGNORED, Sentence

Choice = Callable[[list[int], int, Callable[[], torch.Tensor]], int]
"""(tokens so far, most likely next token, a function that returns the logits (vocabulary,)) → the next token."""


def most_likely(tokens: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
    """The `Choice` of unconstrained decoding."""
    return best


@dataclass
class DecodedAnswer:
    """One answer: its tokens `ids`, and whether all of them come from the prefill.

    During decoding: `row` is the row of its sentence in the cache; it attends to the first `visible` tokens there.
    `position`: the position of its first decoded token.
    """

    ids: list[int]
    row: int
    visible: int
    position: int = 0
    from_prefill: bool = True


@dataclass(frozen=True)
class Limits:
    """An answer ends with the end mark, or after `max_tokens` tokens."""

    end_mark: int
    max_tokens: int

    def reached(self, ids: list[int]) -> bool:
        return ids[-1] == self.end_mark or len(ids) >= self.max_tokens


def answer_sentences(
    decoder: Decoder, sentences: Sequence[Sentence], limits: Limits, choose: Choice
) -> list[list[DecodedAnswer]]:
    """The answer to every supervised action of every sentence: [sentence][action].

    An answer begins with the notes that are supervised before the action.
    """
    prefill = decoder.prefill(sentences)
    if prefill is None:
        return [_answer_alone(decoder, one, limits, choose) for one in sentences]
    answers: list[list[DecodedAnswer]] = [[] for _ in sentences]
    supervised = 0  # supervised tokens of earlier sentences: the offset of this sentence in `prefill.best`
    for row, sentence in enumerate(sentences):
        numbers = _numbers_of_supervised(sentence)
        for start, end in answer_spans(sentence, limits.end_mark):
            target = sentence.input_ids[start : min(end, start + limits.max_tokens)]
            answer = DecodedAnswer([], row, start)
            _follow(prefill, supervised + numbers[start], target, answer, limits, choose)
            answer.position = prefill.positions[row][min(answer.visible, end - 1)]
            answers[row].append(answer)
        supervised += len(numbers)
    unfinished = [answer for row in answers for answer in row if not answer.from_prefill]
    decode(decoder, prefill.cache, len(sentences), unfinished, limits, choose)
    return answers


def decode_sentence(decoder: Decoder, sentence: Sentence, choose: Choice, limits: Limits) -> list[int]:
    """The tokens that follow one sentence, one forward pass per token: the reference for the batched decoding."""
    prefilled, ids = decoder.begin(sentence), list[int]()
    logits, cache = prefilled.logits, prefilled.cache
    for position in itertools.count(prefilled.position):
        ids.append(choose(ids, int(logits.argmax()), partial(_same, logits)))
        if limits.reached(ids):
            return ids
        visible = torch.ones(1, 1, cache.get_seq_length() + 1, dtype=torch.bool)
        logits = decoder.step(torch.tensor([ids[-1:]]), torch.tensor([[position]]), visible, cache)[0, -1]
    raise AssertionError("unreachable")


def answer_spans(sentence: Sentence, end_mark: int) -> list[tuple[int, int]]:
    """(first, last + 1) of the supervised tokens of each answer: an action with its end mark, and the notes before
    it."""
    spans, start = [], None
    for at, (label, role) in enumerate(zip(sentence.labels, sentence.roles, strict=True)):
        if label != IGNORED and start is None:
            start = at
        if label == end_mark and role == ACTION_ROLE and start is not None:
            spans.append((start, at + 1))
            start = None
    return spans


def _answer_alone(decoder: Decoder, sentence: Sentence, limits: Limits, choose: Choice) -> list[DecodedAnswer]:
    """Decodes every action from its own history, for families without a prefill of whole sentences."""
    return [
        DecodedAnswer(decode_sentence(decoder, sentence.prefix(start), choose, limits), 0, start, 0, False)
        for start, _ in answer_spans(sentence, limits.end_mark)
    ]


def _numbers_of_supervised(sentence: Sentence) -> dict[int, int]:
    """Index of each supervised token → the number of supervised tokens before it in the sentence."""
    indices = [at for at, label in enumerate(sentence.labels) if label != IGNORED]
    return {at: number for number, at in enumerate(indices)}


def _follow(
    prefill: Prefill, first: int, target: list[int], answer: DecodedAnswer, limits: Limits, choose: Choice
) -> None:
    """Appends predictions of the prefill up to the first that deviates from the demonstrated tokens `target`.

    `first`: the index of the first of them among the supervised tokens of all sentences.
    """
    for index, token in enumerate(target, first):
        chosen = choose(answer.ids, prefill.best[index], partial(prefill.logits, index))
        answer.ids.append(chosen)
        if chosen != token:
            answer.from_prefill = limits.reached(answer.ids)
            break
        answer.visible += 1


def decode(
    decoder: Decoder, cache: Cache, rows: int, answers: list[DecodedAnswer], limits: Limits, choose: Choice
) -> None:
    """Continues all `answers` together to their ends, from the cache of `rows` sentences.

    The last token of an answer is not in the cache yet. New tokens are appended to the answer's row of the cache;
    `owners`, int64 (rows, appended tokens), is the index of the answer that each of them belongs to.
    """
    length, owners = cache.get_seq_length(), torch.empty(rows, 0, dtype=torch.int64)
    unfinished = dict(enumerate(answers))
    for new_tokens in itertools.count():
        if not unfinished:
            return
        owners = _drop_finished_rows(cache, owners, unfinished)
        slots = _next_slots(unfinished)
        at = tuple(torch.tensor(list(slots.values())).T)
        shape = len(owners), int(at[1].max()) + 1
        owner = torch.full(shape, _PADDING)
        ids, visible, position = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
        owner[at] = torch.tensor(list(unfinished))
        ids[at] = torch.tensor([answer.ids[-1] for answer in unfinished.values()])
        visible[at] = torch.tensor([answer.visible for answer in unfinished.values()])
        position[at] = torch.tensor([answer.position + new_tokens for answer in unfinished.values()])
        owners = torch.cat([owners, owner], dim=1)
        history = torch.arange(length) < visible[..., None]
        mask = torch.cat([history, owners[:, None, :] == owner[..., None]], dim=2)
        logits = decoder.step(ids, position, mask, cache)
        best = logits.argmax(-1).tolist()
        for number, (row, slot) in slots.items():
            answer = unfinished[number]
            logits_here = partial(logits.__getitem__, (row, slot))
            answer.ids.append(choose(answer.ids, best[row][slot], logits_here))
            if limits.reached(answer.ids):
                del unfinished[number]


def _same(logits: torch.Tensor) -> torch.Tensor:
    return logits


_PADDING = -1
"""The owner of padding tokens, which attend only to each other; without any key their softmax would be NaN."""


def _next_slots(unfinished: dict[int, DecodedAnswer]) -> dict[int, tuple[int, int]]:
    """(row, column) of each answer's next token in the new tokens: its row of the cache, and the next free column."""
    columns: Counter[int] = Counter()
    slots = {}
    for number, answer in unfinished.items():
        slots[number] = answer.row, columns[answer.row]
        columns[answer.row] += 1
    return slots


def _device(cache: Cache) -> torch.device:
    return cast("DynamicLayer", cache.layers[0]).device


def _drop_finished_rows(cache: Cache, owners: torch.Tensor, unfinished: dict[int, DecodedAnswer]) -> torch.Tensor:
    """Removes rows without unfinished answers from the cache once they are half of all rows; removing copies it."""
    rows = sorted({answer.row for answer in unfinished.values()})
    if 2 * len(rows) > len(owners):
        return owners
    cache.batch_select_indices(torch.tensor(rows, device=_device(cache)))
    for answer in unfinished.values():
        answer.row = rows.index(answer.row)
    return owners[rows]


def answer_sources(
    decoder: SourceDecoder, sentences: Sequence[Sentence], choose: Choice, limits: Limits
) -> list[list[int]]:
    """The tokens of the answer to each source of an encoder-decoder, the end mark included.

    Sources are padded to the longest of their batch, and every answer writes one token per forward pass. Rows of
    finished answers are dropped. The tokens equal those of `decode_sentence`, except for ties as above.
    """
    batch = decoder.begin_batch(sentences)
    logits = batch.logits
    answers: list[list[int]] = [[] for _ in sentences]
    rows = list(range(len(sentences)))  # the sentence of each row of the batch
    while True:
        for row, (number, best) in enumerate(zip(rows, logits.argmax(-1).tolist(), strict=True)):
            answers[number].append(choose(answers[number], best, partial(logits.__getitem__, row)))
        unfinished = [row for row, number in enumerate(rows) if not limits.reached(answers[number])]
        if not unfinished:
            return answers
        if len(unfinished) < len(rows):
            batch.keep(unfinished)
            rows = [rows[row] for row in unfinished]
        ids = torch.tensor([answers[number][-1] for number in rows], device=logits.device)
        logits = decoder.step_batch(ids, batch)
