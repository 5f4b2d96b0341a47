"""A loss or gradient that is NaN or infinite stops the run before the update; the message names the episodes."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vlm_agent.errors import TrainingError
from vlm_agent.training.loop import ranks


class FiniteLoss:
    """Collects the losses of one optimiser step and checks them once, before the backward pass of its last batch.

    A check of every batch would synchronise with the GPU each time. A check after the last backward pass would be too
    late: DeepSpeed updates the weights inside it.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[torch.Tensor, list[str]]] = []
        self._passed: list[str] = []

    def watch(self, loss: torch.Tensor, about: list[str]) -> None:
        """`loss`: scalar tensor, the model's; `about`: ids of the episodes in the batch."""
        self._seen.append((loss.detach(), about))

    def check(self, step: int) -> None:
        """Checks all batches since the last call. A collective: all ranks raise if any loss of any rank is not finite.

        Raises TrainingError, which names the episodes of those batches on all ranks, and `step`, the number of updates
        so far.
        """
        seen, self._seen = self._seen, []
        self._passed = [name for _, about in seen for name in about]
        losses = torch.stack([loss.float() for loss, _ in seen])
        if not ranks.any_rank(not bool(losses.isfinite().all())):
            return
        here = [
            f"{loss} from {', '.join(about)}"
            for loss, (_, about) in zip(losses.tolist(), seen, strict=True)
            if not torch.tensor(loss).isfinite()
        ]
        raise TrainingError(
            f"the loss is no finite number after {step} steps: {'; '.join(ranks.gathered(here))}. Nothing was updated "
            "by it. Look at these episodes (`vlm-agent inspect`), or lower the learning rate"
        )

    def check_gradients(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """Checks the gradients, which may overflow although every loss is finite.

        Raises TrainingError like `check`, naming all episodes of the step. DeepSpeed's own gradients are not visible
        here: it has updated the weights by then.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not gradients or not ranks.any_rank(not bool(torch.nn.utils.get_total_norm(gradients).isfinite())):
            return
        raise TrainingError(
            f"the gradients are no finite numbers after {step} steps, though the loss is one; the step read "
            f"{', '.join(ranks.gathered(self._passed))}. Nothing was updated by it. Lower the learning rate, or look "
            "at these episodes (`vlm-agent inspect`)"
        )


class FiniteGradients(TrainerCallback):
    """Checks the gradients between clipping and the update."""

    def __init__(self, finite_loss: FiniteLoss) -> None:
        self.finite_loss = finite_loss

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        self.finite_loss.check_gradients(model.parameters(), state.global_step)
