"""The loss of every model family here, and what its forward pass gives back."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers.utils import ModelOutput

from vlm_agent.sentences import IGNORED


@dataclass
class SupervisedOutput(ModelOutput):
    """`loss` is what is minimised: this batch's share of the mean over all supervised tokens.

    `share`: this batch's part of those tokens. `token_losses`: float32 (supervised tokens,), detached, in reading
    order; `logits` beside them. `action_loss` and `element_loss`: means over this batch, detached.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    past_key_values: object | None = None
    share: torch.Tensor | float | None = None
    token_losses: torch.Tensor | None = None
    action_loss: torch.Tensor | None = None
    element_loss: torch.Tensor | None = None


def supervise(
    hidden: torch.Tensor,
    labels: torch.Tensor,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    items: torch.Tensor | int | None,
) -> SupervisedOutput:
    """Logits and loss at supervised positions only; elsewhere the head, most of the memory of a pass, never runs.

    `hidden` (B, L, width); `labels` int64 (B, L) unshifted, `IGNORED` where there is no loss. `items`: the supervised
    tokens of all the batches whose gradients are summed; None: of this one.
    """
    supervised = labels[:, 1:] != IGNORED
    logits = logits_of(hidden[:, :-1][supervised])
    losses = functional.cross_entropy(logits.float(), labels[:, 1:][supervised], reduction="none")
    count = max(len(losses), 1)  # a batch without actions has no loss, rather than 0/0
    total = count if items is None else torch.as_tensor(items, device=losses.device).clamp(min=1)
    return SupervisedOutput(
        loss=losses.sum() / total,
        logits=logits,
        share=count / total,
        token_losses=losses.detach(),
        action_loss=losses.detach().sum() / count,
    )
