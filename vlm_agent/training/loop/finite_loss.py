"""A loss or gradient that is NaN or infinite stops the run before the update; the message names the episodes."""

import math
from typing import NoReturn

import torch

from vlm_agent.errors import TrainingError
from vlm_agent.training.loop import ranks


class FiniteLoss:
    """Collects the losses of one optimiser step and checks them once, together with its gradients, before the update.

    Each check waits for the GPU, and it is the only thing in a step that does.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[torch.Tensor, list[str]]] = []

    def watch(self, loss: torch.Tensor, about: list[str]) -> None:
        """`loss`: scalar tensor, the model's; `about`: ids of the episodes in the batch."""
        self._seen.append((loss.detach(), about))

    def check(self, step: int, gradient_norm: torch.Tensor | None = None) -> None:
        """Checks all batches since the last call, and the norm of their gradients before clipping: these may overflow
        although every loss is finite. A collective: all ranks raise if any value of any rank is not finite.

        `gradient_norm`: a scalar tensor, None where it is unknown before the update (DeepSpeed). Raises TrainingError,
        which names the episodes of those batches on all ranks, and `step`, the number of updates so far.
        """
        seen, self._seen = self._seen, []
        losses = torch.stack([loss.float() for loss, _ in seen]).isfinite()
        finite = losses.all()
        if gradient_norm is not None:
            finite = finite & gradient_norm.isfinite().to(finite.device)
        if not ranks.anywhere(~finite):
            return
        if ranks.anywhere(~losses.all()):
            self._refuse_losses(seen, step)
        raise TrainingError(
            f"the gradients are not finite after {step} steps, though the loss is one; the step read "
            f"{', '.join(ranks.gathered([name for _, about in seen for name in about]))}. Nothing was updated by it. "
            "Lower the learning rate, or look at these episodes (`vlm-agent inspect`)"
        )

    @staticmethod
    def _refuse_losses(seen: list[tuple[torch.Tensor, list[str]]], step: int) -> NoReturn:
        here = [
            f"{loss} from {', '.join(about)}"
            for loss, about in ((loss.item(), about) for loss, about in seen)
            if not math.isfinite(loss)
        ]
        raise TrainingError(
            f"the loss is not finite after {step} steps: {'; '.join(ranks.gathered(here))}. Nothing was updated "
            "by it. Look at these episodes (`vlm-agent inspect`), or lower the learning rate"
        )
