"""A loss or gradient that is NaN or infinite stops the run before it reaches the weights, and says which episodes gave
it."""

from collections.abc import Iterable

import torch
from transformers import TrainerCallback

from vlm_agent.training import ranks
from vlm_agent.training.errors import TrainingError


class FiniteLoss:
    """Watches the batches of one optimiser step and is asked once, before the backward pass of the last of them.

    Not at every batch: reading a number back from a GPU lets it run dry. Not after the last backward pass either:
    DeepSpeed updates the weights inside it.
    """

    def __init__(self):
        self._seen: list[tuple[torch.Tensor, list[str]]] = []
        self._passed: list[str] = []

    def watch(self, loss: torch.Tensor, about: list[str]) -> None:
        """`loss`: a scalar, as the model gave it; `about`: what the batch was made of."""
        self._seen.append((loss.detach(), about))

    def check(self, step: int) -> None:
        """Asks about all batches since the last check; every rank calls it, and all raise when one has cause.

        Raises TrainingError, which names what was in the batches without a finite loss on any rank, and `step`, how
        many updates were made.
        """
        seen, self._seen = self._seen, []
        self._passed = [name for _, about in seen for name in about]
        losses = torch.stack([loss.float() for loss, _ in seen])
        if not ranks.agreed(not bool(losses.isfinite().all())):
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
        """Asks about the gradients of the losses that passed: one of them may overflow where the loss did not.

        Raises TrainingError as `check` does, naming all that the step read. Gradients that DeepSpeed keeps to itself
        are not seen: it has updated the weights by then.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not gradients or not ranks.agreed(not bool(torch.nn.utils.get_total_norm(gradients).isfinite())):
            return
        raise TrainingError(
            f"the gradients are no finite numbers after {step} steps, though the loss is one; the step read "
            f"{', '.join(ranks.gathered(self._passed))}. Nothing was updated by it. Lower the learning rate, or look "
            "at these episodes (`vlm-agent inspect`)"
        )


class FiniteGradients(TrainerCallback):
    """Has the gradients looked at between their clipping and the update."""

    def __init__(self, finite_loss: FiniteLoss):
        self.finite_loss = finite_loss

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.finite_loss.check_gradients(model.parameters(), state.global_step)
