"""Packing: sentences concatenated in one row without padding. No token attends to another sentence.

Which sentences share a row is decided from their lengths alone, before any is built.
"""

from collections.abc import Sequence

import numpy as np
import torch

from vlm_agent.sentences import ACTION_ROLE, IGNORED, Sentence


def fill_rows(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of sentences that share a row of at most `budget` tokens: first fit, longest first.

    Rows come in the order of their longest sentence, the sentences of a row in their own order. One that is over the
    budget has a row to itself.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        at = next((at for at, left in enumerate(room) if lengths[index] <= left), None)
        if at is None:
            rows.append([])
            room.append(budget)
            at = len(rows) - 1
        rows[at].append(index)
        room[at] -= lengths[index]
    return [sorted(row) for row in rows]


def pack(sentences: Sequence[Sentence]) -> dict[str, torch.Tensor | list[str]]:
    """`input_ids`, `labels`, `kinds`, `position_ids`: int64 (1, L), positions starting at 0 in every sentence;
    `cu_seqlens`: int32 (sentences + 1,), where each begins and the last ends. `about`: the source of each. Where they
    differ from the default: `roles` int64 (1, L), `loss_weights` float32 (1, L).

    The label of a sentence's first token would be predicted by the sentence before it: a sentence never learns it.
    """
    lengths = [len(sentence) for sentence in sentences]
    return {
        "input_ids": _row([sentence.input_ids for sentence in sentences]),
        "labels": _row([sentence.labels for sentence in sentences]),
        "kinds": _row([sentence.kinds for sentence in sentences]),
        "position_ids": _row([range(length) for length in lengths]),
        "cu_seqlens": torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32),
        "about": [sentence.about for sentence in sentences],
        **supervision_columns([sentence.roles for sentence in sentences], [sentence.weights for sentence in sentences]),
    }


def supervision_columns(roles: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> dict[str, torch.Tensor]:
    """`roles` int64 (1, L) if one is not `action`, `loss_weights` float32 (1, L) if one is not 1; else no column."""
    columns = {}
    if any(part.count(ACTION_ROLE) < len(part) for part in roles):
        columns["roles"] = _row(roles)
    if any(part.count(1) < len(part) for part in weights):
        columns["loss_weights"] = torch.from_numpy(np.concatenate([np.asarray(part, np.float32) for part in weights]))[
            None
        ]
    return columns


def pad(sentences: Sequence[Sentence]) -> dict[str, torch.Tensor]:
    """`input_ids` and `labels`, int64 (sentences, longest), padded on the right, where causal attention never looks."""
    longest = max(len(sentence) for sentence in sentences)
    return {
        "input_ids": torch.tensor([_padded(sentence.input_ids, longest, 0) for sentence in sentences]),
        "labels": torch.tensor([_padded(sentence.labels, longest, IGNORED) for sentence in sentences]),
    }


def _padded(values: list[int], length: int, padding: int) -> list[int]:
    return values + [padding] * (length - len(values))


def _row(parts: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, np.int64) for part in parts]))[None]
