"""A loss or gradient that is NaN or infinite stops the run before the update; the message names the episodes."""

import math
from collections.abc import Sequence
from typing import NoReturn

import torch

from vlm_agent.errors import TrainingError
from vlm_agent.training.loop import ranks

Seen = tuple[torch.Tensor, list[str]]
"""The model's loss for a batch, a detached scalar tensor, and the ids of its episodes."""


def check_finite(
    seen: Sequence[Seen], step: int, gradient_norm: torch.Tensor | None = None, numbers: Sequence[int] = ()
) -> list[int]:
    """Checks the batches of one optimiser step, and the norm of its gradients before clipping: these may overflow
    although every loss is finite. The check waits for the GPU, and it is the only thing in a step that does.

    A collective: all ranks raise if any value of any rank is not finite. `gradient_norm`: a scalar tensor, None where
    it is unknown before the update (DeepSpeed). `numbers`: others of this rank that the ranks exchange with it; returns
    the highest of each. Raises TrainingError, which names the episodes of those batches on all ranks, and `step`, the
    number of updates so far.
    """
    losses = torch.stack([loss.float() for loss, _ in seen]).isfinite()
    finite = losses.all()
    if gradient_norm is not None:
        finite = finite & gradient_norm.isfinite().to(finite.device)
    # A fill, unlike a copy of the numbers to the device, does not wait.
    sent = [torch.full((), number, dtype=torch.int64, device=finite.device) for number in numbers]
    is_refused, *highest = ranks.highest_of_each(torch.stack([(~finite).long(), *sent]))
    if not is_refused:
        return highest
    if ranks.highest_of_each((~losses.all()).long()[None])[0]:
        _refuse_losses(seen, step)
    raise TrainingError(
        f"the gradients are not finite after {step} steps, though the loss is one; the step read "
        f"{', '.join(ranks.gathered([name for _, about in seen for name in about]))}. Nothing was updated by it. "
        "Lower the learning rate, or look at these episodes (`vlm-agent inspect`)"
    )


def _refuse_losses(seen: Sequence[Seen], step: int) -> NoReturn:
    values = [(loss.item(), about) for loss, about in seen]
    here = [f"{loss} from {', '.join(about)}" for loss, about in values if not math.isfinite(loss)]
    raise TrainingError(
        f"the loss is not finite after {step} steps: {'; '.join(ranks.gathered(here))}. Nothing was updated "
        "by it. Look at these episodes (`vlm-agent inspect`), or lower the learning rate"
    )
