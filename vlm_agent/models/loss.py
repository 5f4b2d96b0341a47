"""What the forward passes of all families share: the loss, and the targets of a batch.

Two conventions for labels. `labels`: unshifted, beside the input tokens; the output at position i predicts label i + 1
(decoder-only models). `shift_labels`: beside the outputs; the output at position i predicts label i (encoder-decoder
models, whose labels are a sequence of their own). The columns `kinds`, `roles` and `loss_weights` of a batch are beside
its labels. A batch may hold several sequences: all columns are (B, L).
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from vlm_agent.models.attention import packed_options
from vlm_agent.sentences import ACTION_ROLE, IGNORED
from vlm_agent.sentences.packing import target_places

NOT_FOR_MODELS = (
    *("kinds", "roles", "about", "lengths", "supervised", "screen_sizes"),
    *("source_lengths", "target_lengths", "feature_counts"),
)
"""Columns of a batch for metrics and messages, which no model's forward accepts."""


@dataclass
class SupervisedOutput(ModelOutput):
    """`loss`: this batch's part of the weighted mean over all supervised tokens.

    `share`: this batch's part of the sum of their weights. `token_losses`: float32 (supervised tokens,), unweighted,
    detached, in reading order; `logits` beside them. `element_loss`: mean over this batch, detached.
    `clipped`: with a `Policy`, the number of tokens whose ratio is clipped.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    share: torch.Tensor | float | None = None
    token_losses: torch.Tensor | None = None
    element_loss: torch.Tensor | None = None
    clipped: torch.Tensor | None = None


class Policy(NamedTuple):
    """The columns of a policy gradient, float32 (B, L), beside the labels of a batch.

    A sampled token has the loss -min(r A, clip(r, 1 - low, 1 + high) A), with the ratio r of its probability to the one
    it was sampled with (PPO, Schulman et al. 2017, eq. 7; the two bounds of DAPO, Yu et al. 2025, eq. 10). `advantages`
    holds A, `log_probabilities` those of the sampler; NaN for a token that no ratio is taken of, whose loss is A times
    its cross entropy. `temperature` divides the logits, as in sampling. `clip`: (low, high).
    """

    advantages: torch.Tensor
    log_probabilities: torch.Tensor
    temperature: float
    clip: tuple[float, float]

    def losses(self, entropies: torch.Tensor, predicted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses, and which of them are clipped: (supervised tokens,) each. `entropies`: the cross entropies of the
        supervised tokens; `predicted`: their places in the columns."""
        advantages, sampled = (column.flatten()[predicted] for column in self[:2])
        has_ratio, (low, high) = ~sampled.isnan(), self.clip
        # In place of NaN the own value: the gradient of what `where` does not choose must be finite, too.
        ratio = (torch.where(has_ratio, sampled, -entropies.detach()).neg() - entropies).exp()
        free, bounded = ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
        losses = torch.where(has_ratio, -torch.minimum(free, bounded), advantages * entropies)
        return losses, has_ratio & (bounded < free)


def supervise(
    hidden: torch.Tensor,
    labels: torch.Tensor,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    items: torch.Tensor | float | None,
    weights: torch.Tensor | None = None,
    shift: bool = True,
    places: torch.Tensor | None = None,
    policy: Policy | None = None,
) -> SupervisedOutput:
    """Logits and loss at supervised positions only; elsewhere the head, most of the memory of a pass, never runs.

    `hidden` (B, L, width). `labels` int64 (B, L), `IGNORED` at positions without loss. `weights` float (B, L), None:
    all 1. `shift`: labels are beside the input tokens, else beside the outputs. `items`: the sum of the weights of all
    batches whose gradients are summed; None: of this one. `places`: `target_places` of the labels; None: found here,
    where a GPU must be waited for. `policy`: of a policy gradient, in place of the cross entropy.
    """
    places = target_places(labels, shift) if places is None else places
    predicted = places + int(shift)
    logits = logits_of(hidden.flatten(0, 1).index_select(0, places))
    scaled = logits.float() if policy is None else logits.float() / policy.temperature
    entropies = functional.cross_entropy(scaled, labels.flatten()[predicted], reduction="none")
    losses, clipped = (entropies, None) if policy is None else policy.losses(entropies, predicted)
    if weights is None:
        weighted = losses
        count: torch.Tensor | int = max(len(losses), 1)  # the loss of a batch without targets is 0, not 0/0
    else:
        weights = weights.flatten()[predicted]
        weighted, count = losses * weights, _one_for_zero(weights.sum())
    total = count if items is None else _one_for_zero(torch.as_tensor(items, device=losses.device))
    return SupervisedOutput(
        loss=weighted.sum() / total,
        logits=logits,
        share=count / total,
        token_losses=entropies.detach(),
        clipped=None if clipped is None else clipped.sum(),
    )


def _one_for_zero(total: torch.Tensor) -> torch.Tensor:
    return torch.where(total > 0, total, torch.ones_like(total))


_OPTIONAL_COLUMNS = ("roles", "loss_weights")


@dataclass(frozen=True)
class Targets:
    """The labels of a batch and the columns beside them, (B, L), in the places of the outputs that predict them.

    `kinds` int64, `roles` int64 and `weights` float32; `roles` None: all `action`; `weights` None: all 1.
    """

    labels: torch.Tensor
    kinds: torch.Tensor
    roles: torch.Tensor | None = None
    weights: torch.Tensor | None = None

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> "Targets":
        if "shift_labels" in batch:
            return cls(batch["shift_labels"], batch["kinds"], batch.get("roles"), batch.get("loss_weights"))
        roles, weights = (column if column is None else column[:, 1:] for column in map(batch.get, _OPTIONAL_COLUMNS))
        return cls(batch["labels"][:, 1:], batch["kinds"][:, 1:], roles, weights)

    @property
    def supervised(self) -> torch.Tensor:
        """bool (B, L)"""
        return self.labels != IGNORED

    @property
    def in_actions(self) -> torch.Tensor:
        """bool (B, L): supervised tokens of role `action`."""
        return self.supervised if self.roles is None else self.supervised & (self.roles == ACTION_ROLE)

    @property
    def total_weight(self) -> torch.Tensor:
        """float64 (): the sum of the weights of all supervised tokens."""
        weights = 1 if self.weights is None else self.weights
        return (self.supervised * weights).sum(dtype=torch.float64)


class ReadsRows(nn.Module):
    """A mixin before a model class of transformers: a second forward pass, over packed rows.

    `forward` calls `read_row` for a batch with `row_argument`, and transformers' own forward pass for any other.
    Weights, their names and `generate` stay transformers' own. A subclass has `read`: from the column `row_argument`,
    `input_ids` and further columns of a row to transformers' output without the head.
    """

    row_argument: ClassVar[str]
    # Attributes of the transformers class.
    config: Any
    model: Any
    lm_head: nn.Linear

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.forward = _or_row(super().forward)

    @classmethod
    def is_custom_code(cls) -> bool:
        """False: published checkpoints use old weight names, which transformers converts at loading and saving only for
        its own classes; otherwise these weights would stay random."""
        return False

    def read(self, *args: Any, **columns: Any) -> Any:
        raise NotImplementedError

    def read_row(
        self,
        row: Any,
        *,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        cu_seqlens: np.ndarray | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        loss_weights: torch.Tensor | None = None,
        policy: Policy | None = None,
        target_places: torch.Tensor | None = None,
        branches: np.ndarray | None = None,
        **columns: Any,
    ) -> SupervisedOutput:
        """The loss of `supervise` for the inputs of `read`; `row`: the column `row_argument`. `cu_seqlens`,
        `target_places`, `branches`: see `sentences/packing.py`."""
        language_model = getattr(self.model, "language_model", self.model)
        packed = packed_options(language_model, cu_seqlens, input_ids.device, branches=branches)
        # The default of the configuration is a cache, which would copy all keys and values.
        hidden = self.read(row, input_ids=input_ids, use_cache=False, **columns, **packed).last_hidden_state
        return supervise(
            hidden, labels, self.lm_head, num_items_in_batch, loss_weights, places=target_places, policy=policy
        )


def _or_row(forward: Callable) -> Callable:
    """The signature is unchanged, because `generate` inspects it."""

    @functools.wraps(forward)
    def forward_or_row(self: ReadsRows, *args: Any, **batch: Any) -> Any:
        row = batch.pop(self.row_argument, None)
        return forward(self, *args, **batch) if row is None else self.read_row(row, **batch)

    return forward_or_row
