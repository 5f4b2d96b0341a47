"""Packing: several sentences concatenated to one row without padding. No token attends to another sentence.

`fill_rows` assigns sentences to rows by their lengths alone, before any sentence is built.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from vlm_agent.sentences import ACTION_ROLE, IGNORED, SCREEN_TOKEN, Sentence


def fill_rows(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of the sentences in each row of at most `budget` tokens: first-fit decreasing bin packing.

    Rows are ordered by their longest sentence, longest first; indices within a row ascend. A sentence over the budget
    has a row of its own.
    """
    rows: list[list[int]] = []
    free_tokens: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((row for row, free in enumerate(free_tokens) if lengths[index] <= free), None)
        if row is None:
            rows.append([])
            free_tokens.append(budget)
            row = len(rows) - 1
        rows[row].append(index)
        free_tokens[row] -= lengths[index]
    return [sorted(row) for row in rows]


def pack(sentences: Sequence[Sentence]) -> dict[str, Any]:
    """One row of L tokens.

    `input_ids`, `labels`, `kinds`, `position_ids`: int64 (1, L); positions restart at 0 in every sentence.
    `screen_places`, `target_places`: int64 (n,), the positions of visual tokens, and of outputs that predict a label.
    Found later, they would make a step wait for the GPU. `about`: the source of each sentence.
    `roles` int64 (1, L) and `loss_weights` float32 (1, L) only where they differ from the default.

    Plain numbers, which stay on the CPU when the tensors move to a GPU, so that reading them never waits for it:
    `lengths`, the tokens of each sentence, and `cu_seqlens`, NumPy int32 (sentences + 1,), their cumulative sum from 0;
    `supervised`, the number of labels; `screen_sizes`, the (height, width) of each screen as the model takes it;
    `branches`, only where there are any, NumPy int64 (branches, 3): sentence, begin in it, prefix (the first position).

    The first token of each sentence must have no label: the last token of the previous sentence would predict it.
    """
    lengths = [len(sentence) for sentence in sentences]
    ids, labels = (_row([getattr(sentence, name) for sentence in sentences]) for name in ("input_ids", "labels"))
    branches = [(number, *branch) for number, sentence in enumerate(sentences) for branch in sentence.branches]
    return {
        "input_ids": ids,
        "labels": labels,
        "kinds": _row([sentence.kinds for sentence in sentences]),
        "position_ids": _row([one.positions() if one.branches else range(len(one)) for one in sentences]),
        "cu_seqlens": np.cumsum([0, *lengths], dtype=np.int32),
        "screen_places": places(ids == SCREEN_TOKEN),
        "target_places": target_places(labels),
        "about": [sentence.about for sentence in sentences],
        "lengths": lengths,
        "supervised": int((labels != IGNORED).sum()),
        "screen_sizes": [screen.shape[1:] for sentence in sentences for screen in sentence.screens],
        **supervision_columns([sentence.roles for sentence in sentences], [sentence.weights for sentence in sentences]),
        **({"branches": np.array(branches)} if branches else {}),
    }


def places(mask: torch.Tensor) -> torch.Tensor:
    """int64 (n,): the indices of the True elements of a mask, flattened. Its size depends on values of the device."""
    return mask.flatten().nonzero().squeeze(1)


def filled(embeddings: torch.Tensor, places: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Embeddings (B, L, width) with `tokens` (n, width) at `places`, int64 (n,), of the B * L flattened positions.

    The same values as `masked_scatter`, whose backward pass waits for the GPU to count the mask.
    """
    rows = embeddings.flatten(0, 1)
    return rows.index_copy(0, places, tokens.to(rows.dtype)).view_as(embeddings)


def target_places(labels: torch.Tensor, shift: bool = True) -> torch.Tensor:
    """int64 (n,): the places of outputs that predict a label, among all B * L, in reading order.

    `labels` int64 (B, L). `shift`: labels are beside the input tokens, so that output i predicts label i + 1; else
    beside the outputs.
    """
    supervised = labels != IGNORED
    return places(functional.pad(supervised[:, 1:], (0, 1)) if shift else supervised)


def supervision_columns(roles: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> dict[str, torch.Tensor]:
    """`roles` int64 (1, L), unless all are `action`, and `loss_weights` float32 (1, L), unless all are 1."""
    columns = {}
    if any(part.count(ACTION_ROLE) < len(part) for part in roles):
        columns["roles"] = _row(roles)
    if any(part.count(1) < len(part) for part in weights):
        columns["loss_weights"] = _row(weights, np.float32)
    return columns


def _row(parts: Sequence[Sequence[float]], dtype: type[np.generic] = np.int64) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, dtype) for part in parts]))[None]
