"""The metrics of a log line, over all ranks: losses by kind, throughput, memory, time waiting for data."""

import itertools
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.models.cost import NO_WORK, TrainingFlops
from vlm_agent.models.loss import Targets
from vlm_agent.sentences import ACTION_ROLE, NO_ACTION, ROLES
from vlm_agent.training.dry_run.hardware import gpu_of_device
from vlm_agent.training.loop import ranks

_KINDS = len(ACTION_NAMES)
_SUMS = _KINDS + len(ROLES)
"""Sums of the kinds of actions, then of tokens of role `action` and no kind, then of the other roles."""


class Meter:
    """Counts every batch and is read once per log line.

    Sums stay on the device in between, so that no batch synchronises with a GPU. `flops`: the FLOPs of training the
    model, None if its cost is unknown. `peak_flops`: peak FLOP/s of one device, None if unknown (a CPU).
    """

    def __init__(self, device: torch.device, flops: TrainingFlops | None, peak_flops: float | None) -> None:
        self.device, self.flops, self.peak_flops = device, flops, peak_flops
        self._reset()

    def _reset(self) -> None:
        self._started = time.monotonic()
        self._waited = 0.0
        self._steps = self._tokens = self._element_batches = self._scored = 0
        self._load = NO_WORK
        self._actions = torch.zeros((), dtype=torch.int64, device=self.device)
        self._clipped = torch.zeros((), dtype=torch.int64, device=self.device)
        self._loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._element_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._losses = torch.zeros(_SUMS, dtype=torch.float64, device=self.device)
        self._weights = torch.zeros(_SUMS, dtype=torch.float64, device=self.device)

    def count(self, batch: dict[str, torch.Tensor], output: Any) -> None:
        """A collated batch and the model's output: `loss`, a scalar; `token_losses`, float (supervised,) in reading
        order; `element_loss`, a scalar or None."""
        self._loss += output.loss.detach().double()
        self._tokens += batch["input_ids"].numel()
        if self.flops is not None:
            self._load += self.flops.cost.workload(batch)
        targets = Targets.of(batch)
        self._actions += starts_of_actions(targets.in_actions).sum()
        losses = output.token_losses.double()
        # Selecting by a mask would wait for the GPU to count it; the number of losses is known here.
        places = targets.supervised.flatten().byte().argsort(descending=True, stable=True)[: losses.numel()]
        kinds = targets.kinds.flatten()[places]
        sums = torch.where(kinds == NO_ACTION, _KINDS, kinds)
        if targets.roles is not None:
            roles = targets.roles.flatten()[places]
            sums = torch.where(roles == ACTION_ROLE, sums, _KINDS + roles)
        weights = torch.ones_like(losses)
        if targets.weights is not None:
            weights = targets.weights.flatten()[places].double()
            losses = losses * weights
        self._losses.index_add_(0, sums, losses)
        self._weights.index_add_(0, sums, weights)
        if output.element_loss is not None:
            self._element_loss += output.element_loss.double()
            self._element_batches += 1
        if (clipped := getattr(output, "clipped", None)) is not None:  # the output of another package's model
            self._clipped += clipped
            self._scored += losses.numel()

    def fetch(self, batches: Iterator[dict], count: int) -> list[dict]:
        """The next `count` batches, those of one step; counts the step, and the time spent waiting for them."""
        started = time.monotonic()
        fetched = list(itertools.islice(batches, count))
        self._waited += time.monotonic() - started
        self._steps += 1
        return fetched

    def read(self) -> dict[str, float]:
        """Figures since the last call, equal on all ranks, and resets the sums. A collective: every rank must call it.

        `loss`: mean over the steps, whose loss is the sum of those of all outputs. `action_loss`: weighted mean over
        supervised tokens of role `action`; `loss_NAME`: over those of one kind of action, or of another role.
        `clipped`: of a policy gradient, the fraction of tokens with a clipped ratio. `…_per_second`: sums over all
        ranks. `data_wait`: fraction of the time. `memory_gib`: the highest peak of a rank, of its GPU, else of main
        memory.
        """
        seconds, steps = time.monotonic() - self._started, max(self._steps, 1)
        sums = self._sums()
        self._reset()
        counts, losses, weights, memory = sums.split([9, _SUMS, _SUMS, ranks.count()])
        tokens, actions, waited, loss, element_loss, element_batches, flops, clipped, scored = counts.tolist()
        in_actions = slice(_KINDS + 1)
        total = weights[in_actions].sum()
        figures = {
            "loss": loss / steps,
            "action_loss": (losses[in_actions].sum() / torch.where(total > 0, total, 1)).item(),
        }
        names = (*ACTION_NAMES, None, *ROLES[1:])
        for name, total_loss, weight in zip(names, losses.tolist(), weights.tolist(), strict=True):
            if weight and name is not None:
                figures[f"loss_{name}"] = total_loss / weight
        if element_batches:
            figures["element_loss"] = element_loss / element_batches
        if scored:
            figures["clipped"] = clipped / scored
        figures |= {
            "tokens_per_second": tokens / seconds,
            "actions_per_second": actions / seconds,
            "data_wait": waited / ranks.count() / seconds,
            "memory_gib": memory.max().item() / 2**30,
        }
        if flops:
            figures["model_tflops_per_second"] = flops / seconds / 1e12
            if self.peak_flops is not None:
                figures["mfu"] = flops / seconds / (self.peak_flops * ranks.count())
        return figures

    def _sums(self) -> torch.Tensor:
        """All sums in one tensor, for one all-reduce; the last elements are each rank's memory."""
        memory = torch.zeros(ranks.count(), dtype=torch.float64, device=self.device)
        memory[ranks.number()] = _peak_memory(self.device)
        flops = 0 if self.flops is None else self.flops.of(self._load).model
        counts = torch.tensor(
            [self._tokens, 0, self._waited, 0, 0, self._element_batches, flops, 0, self._scored],
            dtype=torch.float64,
            device=self.device,
        )
        counts[1], counts[3], counts[4] = self._actions, self._loss, self._element_loss
        counts[7] = self._clipped
        return ranks.summed(torch.cat([counts, self._losses, self._weights, memory])).cpu()


def starts_of_actions(in_actions: torch.Tensor) -> torch.Tensor:
    """Bool (B, L) to bool (B, L): the first token of each run. A screen stands between any two actions of a row."""
    before = torch.nn.functional.pad(in_actions[:, :-1], (1, 0))
    return in_actions & ~before


def peak_flops(device: torch.device, bf16: bool) -> float | None:
    """FLOP/s of this rank's GPU; None for a CPU and for a GPU that is not in `hardware.GPUS`."""
    gpu = gpu_of_device(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if gpu is None else gpu.peak(bf16)


def _peak_memory(device: torch.device) -> int:
    """Bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
