"""What a run does between two log lines, over all its ranks: losses by kind, speed, memory, time lost to the loader."""

import resource
import sys
import time
from collections.abc import Iterator

import torch

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.sentences import IGNORED, NO_ACTION
from vlm_agent.training import ranks

_KINDS = len(ACTION_NAMES)


class Meter:
    """Counts batches and is read once a log line.

    Sums stay on the device until then, so that no batch waits for a number to come back from a GPU. `peak_flops`: the
    floating point operations of one device a second, None where nobody knows them (a CPU).
    """

    def __init__(self, device: torch.device, peak_flops: float | None):
        self.device, self.peak_flops = device, peak_flops
        self._reset()

    def _reset(self) -> None:
        self._started = time.monotonic()
        self._waited = 0.0
        self._tokens = self._element_batches = self._flops = 0
        self._actions = torch.zeros((), dtype=torch.int64, device=self.device)
        self._element_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        # One place more, for what is learned and is no action.
        self._loss_of_kind = torch.zeros(_KINDS + 1, dtype=torch.float64, device=self.device)
        self._tokens_of_kind = torch.zeros(_KINDS + 1, dtype=torch.float64, device=self.device)

    def count(self, batch: dict[str, torch.Tensor], output) -> None:
        """A packed batch (`sentences.packing`), with the model's `flops` for it where they are known, and what the
        model made of it: `token_losses`, float (supervised,) in the order of the row, and `element_loss`, a scalar or
        None."""
        self._tokens += batch["input_ids"].numel()
        self._flops += batch.get("flops", 0)
        supervised = batch["labels"][0, 1:] != IGNORED
        self._actions += starts_of_actions(supervised).sum()
        losses = output.token_losses.double()
        # A selection by mask would wait for the GPU to learn its size; the number of losses is known here.
        places = supervised.byte().argsort(descending=True, stable=True)[: losses.numel()]
        kinds = batch["kinds"][0, 1:][places]
        kinds = torch.where(kinds == NO_ACTION, _KINDS, kinds)
        self._loss_of_kind.index_add_(0, kinds, losses)
        self._tokens_of_kind.index_add_(0, kinds, torch.ones_like(losses))
        if output.element_loss is not None:
            self._element_loss += output.element_loss.double()
            self._element_batches += 1

    def timed(self, batches: Iterator) -> Iterator:
        """The same batches; the time that each lets its reader wait is counted."""
        while True:
            asked = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self._waited += time.monotonic() - asked
            yield batch

    def read(self) -> dict[str, float]:
        """Figures since the last reading, the same on all ranks, each of which must call it; starts anew.

        `action_loss` and `loss_NAME`: mean over supervised tokens; `…_per_second`: of all ranks together; `data_wait`:
        share of the time; `memory_gib`: the most that a rank has held so far, of its GPU or else of main memory.
        """
        seconds = time.monotonic() - self._started
        sums = self._sums()
        self._reset()
        counts, loss_of_kind, tokens_of_kind, memory = sums.split([6, _KINDS + 1, _KINDS + 1, ranks.count()])
        tokens, actions, waited, element_loss, element_batches, flops = counts.tolist()
        figures = {"action_loss": (loss_of_kind.sum() / tokens_of_kind.sum().clamp(min=1)).item()}
        for name, loss, count in zip(ACTION_NAMES, loss_of_kind.tolist(), tokens_of_kind.tolist(), strict=False):
            if count:
                figures[f"loss_{name}"] = loss / count
        if element_batches:
            figures["element_loss"] = element_loss / element_batches
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
        """Everything in one tensor, so that the ranks talk once; the last places hold each rank's memory."""
        memory = torch.zeros(ranks.count(), dtype=torch.float64, device=self.device)
        memory[ranks.number()] = _peak_memory(self.device)
        counts = torch.tensor(
            [self._tokens, 0, self._waited, 0, self._element_batches, self._flops],
            dtype=torch.float64,
            device=self.device,
        )
        counts[1], counts[3] = self._actions, self._element_loss
        return ranks.summed(torch.cat([counts, self._loss_of_kind, self._tokens_of_kind, memory])).cpu()


def starts_of_actions(supervised: torch.Tensor) -> torch.Tensor:
    """Bool (L,) to bool (L,): where a run of supervised tokens begins. Between two actions there is always a screen."""
    before = torch.nn.functional.pad(supervised[:-1], (1, 0))
    return supervised & ~before


def _peak_memory(device: torch.device) -> int:
    """Bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
