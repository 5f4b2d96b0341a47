"""Greedy decoding of all steps of many demonstrations after one prefill.

The history is teacher-forced, so one forward pass over a whole trajectory (`prefill`) computes the next-token
prediction after every token of every demonstrated action. While predictions equal the demonstrated tokens, the prefill
has already processed the tokens of the answer. A step that never deviates, or deviates with its last token, is answered
by the prefill alone. Every other step is decoded from the KV cache up to the deviation. These steps are decoded
together, one token of each per forward pass: they share the cached history of their sentence, and an attention mask
restricts each to the history before its step and to its own tokens. All these forward passes have equal shapes, so that
a GPU can replay them (`models/decoding.py`).

The tokens equal those of decoding step by step, except for ties broken by rounding, because the order of summation
depends on the batch. No such tie was observed in float32; they occur in mixed precision.

The memory is that of the KV cache of the sentences, each as long as the longest of its batch, and at most `max_tokens`
more positions per answer.

Encoder-decoder models have a source for each step, so that no answer shares keys and values with another
(`answer_sources`).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from vlm_agent.models.attention import to_device
from vlm_agent.models.decoding import (
    CausalDecoder,
    Decoder,
    Prefill,
    ReadSentence,
    Replayed,
    SourceDecoder,
    fixed_cache,
)
from vlm_agent.sentences import ACTION_ROLE, IGNORED, Sentence

Choice = Callable[[list[int], int, Callable[[], torch.Tensor]], int]
"""(tokens so far, most likely next token, a function that returns the logits (vocabulary,)) → the next token."""


def most_likely(tokens: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
    """The `Choice` of unconstrained decoding."""
    return best


@dataclass
class DecodedAnswer:
    """One answer: its tokens `ids`, and whether all of them come from the prefill.

    During decoding, `sentence` is the number of its sentence in the batch; it attends to the first `visible` tokens of
    it. `position`: the position of its first decoded token.
    """

    ids: list[int]
    sentence: int
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
    readings = [(number, *one) for number, whole in enumerate(sentences) for one in _readings(decoder, whole, limits)]
    prefill = decoder.prefill([sentence for _, sentence, _ in readings])
    if prefill is None:
        # For families without a prefill of whole sentences, every action is decoded from its own history.
        return [
            [
                DecodedAnswer(decode_sentence(decoder, one.prefix(start), choose, limits), 0, start, 0, False)
                for start, _ in answer_spans(one, limits.end_mark)
            ]
            for one in sentences
        ]
    answers: list[list[DecodedAnswer]] = [[] for _ in sentences]
    supervised = 0  # supervised tokens of earlier sentences: the offset of this sentence in `prefill.best`
    for place, (number, sentence, spans) in enumerate(readings):
        # Index of each supervised token → the number of supervised tokens before it in the sentence.
        indices = (at for at, label in enumerate(sentence.labels) if label != IGNORED)
        numbers = {at: number for number, at in enumerate(indices)}
        for start, end in spans:
            target = sentence.input_ids[start : min(end, start + limits.max_tokens)]
            answer = DecodedAnswer([], place, start)
            _follow(prefill, supervised + numbers[start], target, answer, limits, choose)
            answer.position = prefill.positions[prefill.starts[place] + min(answer.visible, end - 1)]
            answers[number].append(answer)
        supervised += len(numbers)
    unfinished = [answer for those in answers for answer in those if not answer.from_prefill]
    decode(decoder, prefill.cache, prefill.starts, unfinished, limits, choose)
    return answers


def decode_sentence(decoder: Decoder, sentence: Sentence, choose: Choice, limits: Limits) -> list[int]:
    """The tokens that follow one sentence, one forward pass per token: the reference for the batched decoding."""
    prefilled, ids = decoder.begin(sentence), list[int]()
    logits, cache = prefilled.logits, prefilled.cache
    for position in itertools.count(prefilled.position):
        ids.append(choose(ids, int(logits.argmax()), logits.detach))
        if limits.reached(ids):
            return ids
        visible = torch.ones(1, 1, cache.get_seq_length() + 1, dtype=torch.bool)
        logits = decoder.step(torch.tensor([ids[-1:]]), torch.tensor([[position]]), visible, cache)[0, -1]
    raise AssertionError("unreachable")


def decode_together(
    decoder: CausalDecoder,
    read: Sequence[ReadSentence],
    logits: torch.Tensor,
    choices: Sequence[Choice],
    limits: Limits,
) -> list[list[int]]:
    """The tokens that follow each of several sentences that were read, one forward pass for a token of each. `logits`:
    (vocabulary,) of the first token. `choices`: one a sentence. The tokens equal those of `decode_sentence`, except for
    ties as above.
    """
    answers: list[list[int]] = [[] for _ in read]
    unfinished = list(range(len(read)))
    while True:
        for number, here in zip(unfinished, logits, strict=True):
            answers[number].append(choices[number](answers[number], int(here.argmax()), here.detach))
        unfinished = [number for number in unfinished if not limits.reached(answers[number])]
        if not unfinished:
            return answers
        parts = [Sentence(input_ids=answers[number][-1:]) for number in unfinished]
        logits = decoder.read_on(parts, [read[number] for number in unfinished])


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


def _readings(decoder: Decoder, sentence: Sentence, limits: Limits) -> list[tuple[Sentence, list[tuple[int, int]]]]:
    """The sentence once for every first position of its prompts, each up to the last answer to such a prompt, and with
    the labels of these answers alone; and their `answer_spans`."""
    spans = answer_spans(sentence, limits.end_mark)
    groups = [[*group] for _, group in itertools.groupby(spans, lambda span: decoder.first_position(span[0]))]
    if len(groups) <= 1:
        return [(sentence, spans)]
    parts = [(group[0][0], sentence.prefix(group[-1][1]), group) for group in groups]
    return [(replace(part, labels=[IGNORED] * start + part.labels[start:]), group) for start, part, group in parts]


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
    decoder: Decoder,
    cache: Cache,
    starts: Sequence[int],
    answers: Sequence[DecodedAnswer],
    limits: Limits,
    choose: Choice,
) -> None:
    """Continues all `answers` together to their ends. `cache`: of one row, in which sentences begin at `starts`; it is
    emptied.

    The last token of an answer is not in the cache yet.
    """
    unfinished = {number: _Place(0, starts[answer.sentence]) for number, answer in enumerate(answers)}
    written = 0  # tokens of each answer in the cache
    while unfinished:
        steps = limits.max_tokens - min(len(answers[number].ids) for number in unfinished)
        columns = _Columns(unfinished, answers, written, steps)
        cache, step = columns.step(decoder, cache, unfinished, answers)
        unfinished, most = columns.places, len(unfinished)
        # Another cache without the finished answers costs a copy, and on a GPU another graph.
        while unfinished and len(unfinished) * _FINISHED_SHARE > most:
            best, logits = step(columns.inputs(answers, unfinished, written))
            written += 1
            tokens = best.tolist()
            for number, place in [*unfinished.items()]:
                answer, logits_here = answers[number], partial(logits.__getitem__, (place.row, place.slot))
                answer.ids.append(choose(answer.ids, tokens[place.row][place.slot], logits_here))
                if limits.reached(answer.ids):
                    del unfinished[number]


_FINISHED_SHARE = 4
"""Finished answers leave the cache when no more than this fraction is unfinished."""


@dataclass(frozen=True)
class _Place:
    """Where an answer is in a cache: its row, the column in which its sentence begins there, and its slot: the columns
    of its own tokens are `own` + slot, `own` + slot + slots, …"""

    row: int
    start: int = 0
    slot: int = 0
    own: int = 0
    slots: int = 1

    def own_columns(self, written: int) -> np.ndarray:
        return self.own + self.slot + self.slots * np.arange(written)


class _Columns:
    """The tokens in a cache of fixed size, for the answers of some sentences.

    A row holds the first `history` tokens of a sentence. Each decoded token of its answers has a column after them:
    `slots` columns for the first token of every answer, `slots` for the second, and so on, for `written` tokens that
    are in the cache already and `steps` to come. A slot without an answer attends to its own tokens only; without any,
    its softmax would be NaN.
    """

    def __init__(self, old: Mapping[int, _Place], answers: Sequence[DecodedAnswer], written: int, steps: int) -> None:
        """`old`: the places in the cache before, by the number of the answer in `answers`."""
        rows = {sentence: row for row, sentence in enumerate(sorted({answers[number].sentence for number in old}))}
        used: Counter[int] = Counter(rows[answers[number].sentence] for number in old)
        self.rows, self.slots = len(rows), max(used.values())
        self.history, self.written = max(answers[number].visible for number in old), written
        # A multiple of 8, which kernels of attention with a mask want.
        self.capacity = -(-(self.history + self.slots * (written + steps)) // 8) * 8
        free = [itertools.count() for _ in rows]
        self.places: dict[int, _Place] = {}
        for number in old:
            row = rows[answers[number].sentence]
            self.places[number] = _Place(row, 0, next(free[row]), self.history, self.slots)

    def step(
        self, decoder: Decoder, cache: Cache, old: Mapping[int, _Place], answers: Sequence[DecodedAnswer]
    ) -> tuple[Cache, Replayed]:
        """The cache with the tokens of `cache`, and the forward pass for `inputs`: the most likely tokens, int64 (rows,
        slots), and their logits (rows, slots, vocabulary)."""
        device = cast("DynamicLayer", cache.layers[0]).device
        row, column = (to_device(part, device) for part in self._taken_over(cache, old))
        visible, position = np.zeros((2, self.rows, self.slots), np.int64)
        for number, place in self.places.items():
            visible[place.row, place.slot] = answers[number].visible
            position[place.row, place.slot] = answers[number].position
        seen = torch.arange(self.capacity, device=device) < to_device(visible, device)[..., None]
        first_position = to_device(position, device)
        slot = torch.arange(self.slots, device=device)
        after = torch.arange(self.capacity, device=device) - self.history
        own = (after >= 0) & (after % self.slots == slot[:, None])
        new = torch.empty_like(slot)  # the columns of new tokens, which the cache reads
        cache = fixed_cache(cache, row, column, self.capacity, new)

        def step(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            written = inputs[-1]
            new.copy_(self.history + written * self.slots + slot)
            mask = seen | (own & (after // self.slots <= written))
            logits = decoder.step(inputs[:-1].view(position.shape), first_position + written, mask, cache)
            return logits.argmax(-1), logits

        return cache, Replayed(step, position.size + 1, device)

    def inputs(self, answers: Sequence[DecodedAnswer], unfinished: Mapping[int, _Place], written: int) -> torch.Tensor:
        """int64 (rows * slots + 1,): the last token of each answer, and the tokens of each that are in the cache."""
        ids = np.zeros(self.rows * self.slots + 1, np.int64)
        for number, place in unfinished.items():
            ids[place.row * self.slots + place.slot] = answers[number].ids[-1]
        ids[-1] = written
        return torch.from_numpy(ids)

    def _taken_over(self, cache: Cache, old: Mapping[int, _Place]) -> tuple[np.ndarray, np.ndarray]:
        """Row (rows, 1) and column (rows, tokens) in `cache` of each token in the new one. Slots without an answer, and
        history beyond a sentence, take any token."""
        last = cache.get_seq_length() - 1
        row = np.zeros((self.rows, 1), np.int64)
        column = np.zeros((self.rows, self.history + self.slots * self.written), np.int64)
        for number, place in self.places.items():
            row[place.row] = old[number].row
            column[place.row, : self.history] = np.minimum(old[number].start + np.arange(self.history), last)
            column[place.row, place.own_columns(self.written)] = old[number].own_columns(self.written)
        return row, column


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
