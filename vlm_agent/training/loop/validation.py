"""Validation during training: the loss of a fixed sample of episodes, and the fraction of exact actions.

Teacher-forced: an action is exact if every one of its tokens is the most likely one after the demonstrated history and
the action's own earlier tokens. One forward pass covers all actions of an episode.
"""

import hashlib
from collections.abc import Iterator, Sequence

import torch

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.errors import TrainingError
from vlm_agent.models.loss import NOT_FOR_MODELS, Targets
from vlm_agent.training.engine import Rows, load
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.meter import starts_of_actions
from vlm_agent.training.run_folder.checkpoints import preserved_random_state

_KINDS = len(ACTION_NAMES)


def fixed_sample(ids: Sequence[str], subsets: Sequence[str], count: int) -> list[int]:
    """Indices of `count` episodes (all, if there are fewer), balanced over subsets.

    Within a subset, the ids with the lowest sha256: the sample does not depend on the order of the shards.
    """
    ranked: dict[str, list[int]] = {}
    for index in sorted(range(len(ids)), key=lambda index: hashlib.sha256(ids[index].encode()).digest()):
        ranked.setdefault(subsets[index], []).append(index)
    turns = [(turn, subset, index) for subset, mine in ranked.items() for turn, index in enumerate(mine)]
    return [index for _, _, index in sorted(turns)[:count]]


class Validation:
    """`packs`: the collated batches of the sample, by number; `workers` processes prepare them.

    Batches are dealt to the ranks. Under ZeRO-3 a forward pass is a collective, so a rank with fewer batches repeats
    one and ignores its result.
    """

    def __init__(self, packs: Rows, workers: int) -> None:
        self.packs, self.workers = packs, workers

    def run(self, model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        """`eval_loss` (weighted mean over supervised tokens), `eval_accuracy` and `eval_accuracy_NAME` (fractions of
        actions that are exact), the same on every rank. The mode of the model and all random number generators are
        restored."""
        sums = torch.zeros(2 + 2 * (_KINDS + 1), dtype=torch.float64, device=device)
        training = model.training
        with preserved_random_state(), torch.no_grad():
            model.eval()
            try:
                for batch, counts in self._share(device):
                    sums += _figures(model, batch) * counts
            finally:
                model.train(training)
        return _named(ranks.summed(sums).cpu())

    def _share(self, device: torch.device) -> Iterator[tuple[dict, bool]]:
        """This rank's batches, each with False if it is a repetition."""
        world, total = ranks.count(), len(self.packs)
        numbers = [ranks.number() + turn * world for turn in range(-(-total // world))]
        loader = load(self.packs, [number % total for number in numbers], self.workers, device)
        return zip(loader, [number < total for number in numbers], strict=True)


def _figures(model: torch.nn.Module, batch: dict) -> torch.Tensor:
    """float64: weighted sum of losses, sum of weights, actions of each kind, exact ones of each kind (kinds, and none).

    Losses are of all roles, actions of role `action`.
    """
    output = model(**{name: value for name, value in batch.items() if name not in NOT_FOR_MODELS})
    targets = Targets.of(batch)
    supervised, in_actions = targets.supervised, targets.in_actions
    starts = starts_of_actions(in_actions)
    wrong = output.logits.flatten(0, -2).argmax(-1) != targets.labels[supervised]
    action = starts.flatten().cumsum(0)[in_actions.flatten()] - 1
    mistakes = torch.zeros(int(starts.sum()), device=action.device)
    mistakes.index_add_(0, action, wrong[in_actions[supervised]].float())
    kinds = targets.kinds[starts] % (_KINDS + 1)  # NO_ACTION, -1, becomes the last
    actions = torch.bincount(kinds, minlength=_KINDS + 1)
    exact = torch.bincount(kinds[mistakes == 0], minlength=_KINDS + 1)
    losses = output.token_losses.double()
    weights = torch.ones_like(losses) if targets.weights is None else targets.weights[supervised].double()
    return torch.cat([torch.stack([(losses * weights).sum(), weights.sum()]), actions, exact])


def _named(sums: torch.Tensor) -> dict[str, float]:
    loss, weight = sums[:2].tolist()
    actions, exact = sums[2:].view(2, _KINDS + 1).tolist()
    if not weight or not sum(actions):
        raise TrainingError(
            "training.validation: none of its steps has an action that the model can write; raise episodes"
        )
    figures = {"eval_loss": loss / weight, "eval_accuracy": sum(exact) / sum(actions)}
    for name, count, right in zip(ACTION_NAMES, actions, exact, strict=False):
        if count:
            figures[f"eval_accuracy_{name}"] = right / count
    return figures
