"""Validation while a run trains: a fixed sample of episodes, its loss, and how many actions come out exactly.

Teacher-forced: an action is exact when, the true history and the action's own earlier tokens given, every one of its
tokens is the model's first choice. One forward pass tells that of all actions of an episode.
"""

import contextlib
import hashlib
import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.sentences import IGNORED
from vlm_agent.training import ranks
from vlm_agent.training.meter import starts_of_actions
from vlm_agent.training.stop_signals import leave_stopping_to_parent

_KINDS = len(ACTION_NAMES)


def fixed_sample(ids: Sequence[str], subsets: Sequence[str], count: int) -> list[int]:
    """Indices of `count` episodes (all, where there are fewer), as many of each subset as there are.

    Within a subset those whose ids have the lowest sha256: the same ones whatever the order of the shards.
    """
    ranked: dict[str, list[int]] = {}
    for index in sorted(range(len(ids)), key=lambda index: hashlib.sha256(ids[index].encode()).digest()):
        ranked.setdefault(subsets[index], []).append(index)
    turns = [(turn, subset, index) for subset, mine in ranked.items() for turn, index in enumerate(mine)]
    return [index for _, _, index in sorted(turns)[:count]]


class Validation:
    """`packs` gives, by number, packed batches of the sample; `workers` processes prepare them.

    Each rank takes its share. All call the model equally often, whatever the number of packs: under ZeRO-3 a forward
    pass is a conversation of all ranks. One whose share is smaller reads a pack again and counts it not.
    """

    def __init__(self, packs: Dataset, workers: int):
        self.packs, self.workers = packs, workers

    def run(self, model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        """`eval_loss` (mean over supervised tokens), `eval_accuracy` and `eval_accuracy_NAME` (shares of actions), the
        same on every rank; the model and all generators of random numbers are left as they were."""
        sums = torch.zeros(2 + 2 * (_KINDS + 1), dtype=torch.float64, device=device)
        training = model.training
        with untouched_randomness(), torch.no_grad():
            model.eval()
            try:
                for batch, counts in self._share():
                    figures = _figures(model, {name: _moved(value, device) for name, value in batch.items()})
                    sums += figures * counts
            finally:
                model.train(training)
        return _named(ranks.summed(sums).cpu())

    def _share(self) -> Iterator[tuple[dict, bool]]:
        """This rank's batches, and whether each counts."""
        world, total = ranks.count(), len(self.packs)
        numbers = [ranks.number() + turn * world for turn in range(-(-total // world))]
        loader = DataLoader(
            self.packs,
            batch_size=None,
            sampler=[number % total for number in numbers],
            num_workers=self.workers,
            worker_init_fn=leave_stopping_to_parent,
            generator=torch.Generator(),  # its own: a loader draws a seed each time
        )
        return zip(loader, [number < total for number in numbers], strict=True)


def _moved(value, device: torch.device):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _figures(model: torch.nn.Module, batch: dict) -> torch.Tensor:
    """float64: sum of losses, supervised tokens, actions of each kind, exact ones of each kind (kinds, and none)."""
    inputs = {name: value for name, value in batch.items() if name not in ("kinds", "about")}
    output = model(**inputs)
    labels, kinds = batch["labels"][0, 1:], batch["kinds"][0, 1:]
    supervised = labels != IGNORED
    starts = starts_of_actions(supervised)
    wrong = output.logits.flatten(0, -2).argmax(-1) != labels[supervised]
    action = starts.cumsum(0)[supervised] - 1
    mistakes = torch.zeros(int(starts.sum()), device=labels.device).index_add_(0, action, wrong.float())
    kinds = kinds[starts] % (_KINDS + 1)  # -1, what is no action, becomes the last
    actions = torch.bincount(kinds, minlength=_KINDS + 1)
    exact = torch.bincount(kinds[mistakes == 0], minlength=_KINDS + 1)
    losses = output.token_losses.double()
    return torch.cat([torch.stack([losses.sum(), torch.ones_like(losses).sum()]), actions, exact])


def _named(sums: torch.Tensor) -> dict[str, float]:
    loss, tokens = sums[:2].tolist()
    actions, exact = sums[2:].view(2, _KINDS + 1).tolist()
    figures = {"eval_loss": loss / tokens, "eval_accuracy": sum(exact) / sum(actions)}
    for name, count, right in zip(ACTION_NAMES, actions, exact, strict=False):
        if count:
            figures[f"eval_accuracy_{name}"] = right / count
    return figures


@contextlib.contextmanager
def untouched_randomness() -> Iterator[None]:
    """Whatever draws random numbers inside, those drawn after it are the same."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
