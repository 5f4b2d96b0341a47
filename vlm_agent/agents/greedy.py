"""Greedy answers to every step of many demonstrations, from one forward pass over them.

The history is given, so one pass over a whole trajectory (`prefill`) holds, behind every token of every demonstrated
action, what greedy decoding would say there. As long as that is the demonstrated token, the pass has already read what
decoding would have written; a step that never leaves its demonstration is settled, and so is one that leaves it with
its last token. Each other step becomes a branch: it goes on from the cache as it was where it left. All branches of all
sentences are decoded together, a token of each in every call: they share the cached history of their sentence, and a
mask keeps each to the part of it that it has read and to its own words.

The tokens are those of decoding step by step, but for ties that rounding breaks: sums over a batch are not added in the
order of sums over one step. In float32 this was never seen; in mixed precision it happens.

Memory is that of the sentences' cache, and of at most `max_tokens` more a branch.
"""

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from transformers import Cache

from vlm_agent.sentences import IGNORED, Sentence

LOGITS_AT_ONCE = 512
"""Positions whose logits a reader holds at a time; with 152 k tokens in the vocabulary, 300 MB in float32."""

Choice = Callable[[list[int], int, Callable[[], torch.Tensor]], int]
"""(tokens said, most likely next token, a function that gives its logits (vocabulary,)) → the next token."""


def most_likely(said: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
    """The `Choice` of free decoding."""
    return best


@dataclass(frozen=True)
class Prefill:
    """What a pass over B sentences leaves: their keys and values, and for each learned token, counted over all
    sentences in order, the most likely one in its place and a function that gives the logits there. `places`: of each
    sentence, the position that the model gave each of its tokens."""

    cache: Cache
    best: list[int]
    logits: Callable[[int], torch.Tensor]
    places: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Begun:
    """A sentence that is read and goes on: its keys and values, the logits (vocabulary,) behind it, and the position at
    which the next token stands."""

    cache: Cache
    logits: torch.Tensor
    place: int


class Reader(Protocol):
    """A model, as far as decoding has to know it; see `llama_vit_reader.py`."""

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill: ...

    def begin(self, sentence: Sentence) -> Begun: ...

    def step(self, ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor: ...


@dataclass
class Said:
    """One answer: its tokens, and whether the prefill alone gave them.

    While it is being decoded: `row` is its sentence's in the cache, of which it has read `read` tokens; the first token
    of its own stands at position `place`.
    """

    choose: Choice
    ids: list[int]
    row: int
    read: int
    place: int = 0
    settled: bool = True


@dataclass(frozen=True)
class Limits:
    """Where an answer ends: at the end mark, or with `max_tokens` tokens."""

    end_mark: int
    max_tokens: int

    def reached(self, ids: list[int]) -> bool:
        return ids[-1] == self.end_mark or len(ids) >= self.max_tokens


def answer_sentences(
    reader: Reader, sentences: Sequence[Sentence], limits: Limits, choices: Sequence[Choice]
) -> list[list[list[Said]]]:
    """The answers to every action of every sentence by each way to choose: [choice][sentence][action]."""
    prefill = reader.prefill(sentences)
    answers = [[[] for _ in sentences] for _ in choices]
    first = 0  # the learned tokens before this action's
    for row, sentence in enumerate(sentences):
        for start, end in action_spans(sentence, limits.end_mark):
            gold = sentence.input_ids[start : min(end, start + limits.max_tokens)]
            for by_sentence, choose in zip(answers, choices, strict=True):
                said = _follow(prefill, first, gold, Said(choose, [], row, start), limits)
                said.place = prefill.places[row][min(said.read, end - 1)]
                by_sentence[row].append(said)
            first += end - start
    branches = [said for by_sentence in answers for row in by_sentence for said in row if not said.settled]
    decode(reader, prefill.cache, len(sentences), branches, limits)
    return answers


def action_spans(sentence: Sentence, end_mark: int) -> list[tuple[int, int]]:
    """(first, last + 1) of each action's tokens, end mark included."""
    spans, start = [], None
    for at, label in enumerate(sentence.labels):
        if label != IGNORED and start is None:
            start = at
        if label == end_mark:
            spans.append((start, at + 1))
            start = None
    return spans


def _follow(prefill: Prefill, first: int, gold: list[int], said: Said, limits: Limits) -> Said:
    """Says what it would along the demonstrated tokens, of which number `first` of all is the first one."""
    for index, token in enumerate(gold, first):
        chosen = said.choose(said.ids, prefill.best[index], partial(prefill.logits, index))
        said.ids.append(chosen)
        if chosen != token:
            said.settled = limits.reached(said.ids)
            break
        said.read += 1
    return said


def decode(reader: Reader, cache: Cache, rows: int, branches: list[Said], limits: Limits) -> None:
    """Goes on with all `branches` at once, to their ends, from the cache of `rows` sentences.

    The last token of a branch is not in the cache yet. What branches say is appended to their rows of the cache, and
    `owners`, int64 (rows, tokens appended), tells whose token each is.
    """
    length, owners = cache.get_seq_length(), torch.empty(rows, 0, dtype=torch.int64)
    alive = dict(enumerate(branches))
    for said_since in itertools.count():
        if not alive:
            return
        owners = _drop_finished_rows(cache, owners, alive)
        seats = _seats(alive)
        at = tuple(torch.tensor(list(seats.values())).T)
        shape = len(owners), int(at[1].max()) + 1
        turn = torch.full(shape, _NOBODY)
        ids, read, place = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
        turn[at] = torch.tensor(list(alive))
        ids[at] = torch.tensor([said.ids[-1] for said in alive.values()])
        read[at] = torch.tensor([said.read for said in alive.values()])
        place[at] = torch.tensor([said.place + said_since for said in alive.values()])
        owners = torch.cat([owners, turn], dim=1)
        mask = torch.cat([torch.arange(length) < read[..., None], owners[:, None, :] == turn[..., None]], dim=2)
        logits = reader.step(ids, place, mask, cache)
        best = logits.argmax(-1).tolist()
        for number, (row, seat) in seats.items():
            said = alive[number]
            said.ids.append(said.choose(said.ids, best[row][seat], partial(operator.getitem, logits, (row, seat))))
            if limits.reached(said.ids):
                del alive[number]


_NOBODY = -1
"""Whose token an empty seat's is: it sees itself, as softmax needs something to see, and nobody sees it."""


def _seats(alive: dict[int, Said]) -> dict[int, tuple[int, int]]:
    """Where each branch's token stands in the next call: its row of the cache, and the next free place in it."""
    taken = Counter()
    seats = {}
    for number, said in alive.items():
        seats[number] = said.row, taken[said.row]
        taken[said.row] += 1
    return seats


def _drop_finished_rows(cache: Cache, owners: torch.Tensor, alive: dict[int, Said]) -> torch.Tensor:
    """Without the rows in which nobody is left, as soon as they are half of all: dropping copies the cache."""
    rows = sorted({said.row for said in alive.values()})
    if 2 * len(rows) > len(owners):
        return owners
    cache.batch_select_indices(torch.tensor(rows, device=cache.layers[0].keys.device))
    for said in alive.values():
        said.row = rows.index(said.row)
    return owners[rows]
