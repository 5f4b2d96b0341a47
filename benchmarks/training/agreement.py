"""Checks that all methods compute the same: relative differences of their losses and gradients."""

from pathlib import Path

import torch
from safetensors.torch import load_file

TOLERANCE = 1e-4


def differences(reference: Path, others: dict[str, Path]) -> dict[str, dict[str, float]]:
    """For each of the others: the relative difference of the whole gradient, and of the worst single weight."""
    wanted = load_file(reference)
    return {name: _difference(wanted, load_file(path)) for name, path in others.items()}


def _difference(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> dict[str, float]:
    if wanted.keys() != found.keys():
        raise SystemExit(f"other weights are trained: {sorted(wanted.keys() ^ found.keys())[:3]} …")
    apart = {name: (found[name].double() - wanted[name].double()).norm().item() for name in wanted}
    size = {name: wanted[name].double().norm().item() for name in wanted}
    whole = sum(value**2 for value in apart.values()) ** 0.5 / sum(value**2 for value in size.values()) ** 0.5
    return {"gradient": whole, "worst_weight": max(apart[name] / size[name] for name in wanted)}


def check(losses: dict[str, float], gradients: dict[str, dict[str, float]]) -> None:
    """Raises SystemExit where a road computes something else: its speed would say nothing."""
    first = next(iter(losses.values()))
    for name, loss in losses.items():
        if not abs(loss - first) <= TOLERANCE * abs(first):  # a NaN is none, either
            raise SystemExit(
                f"{name}: the first loss is {loss}, and {first} on {next(iter(losses))}; speeds would not compare"
            )
    for name, apart in gradients.items():
        if not apart["gradient"] <= TOLERANCE or not apart["worst_weight"] <= TOLERANCE:
            raise SystemExit(f"{name}: its gradients are other ones (relative {apart}); speeds would not compare")
