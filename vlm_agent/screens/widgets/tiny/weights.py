"""Weights of the network in a safetensors file, with what is needed to use them in its metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write
from vlm_agent.files.weight_files import check_digest, digest_of
from vlm_agent.screens.widgets.tiny.network import Network

SHA256 = "4972150f2e1bed90d9a09e8bfb08030b8684ca73aea9945d93f14df3704d83ed"
"""SHA-256 of the package's file, which the card in its folder and all published results refer to."""

_DIGEST = "sha256"
_KEY = "phone_widgets_tiny"
"""The only key of the metadata: safetensors writes several in random order."""


@dataclass(frozen=True)
class Weights:
    """`tensors`: the state of a `Network`. `side`, `with_state`: see `PhoneWidgetsTiny`."""

    tensors: Mapping[str, torch.Tensor]
    side: int
    with_state: tuple[str, ...]

    def network(self) -> Network:
        network = Network(len(WIDGET_KINDS))
        network.load_state_dict({name: tensor.to(torch.float32) for name, tensor in self.tensors.items()})
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def write_weights(path: Path, weights: Weights) -> None:
    """Writes float16: half the bytes, and differences in the fourth digit of scores."""
    described = {"kinds": WIDGET_KINDS, "side": weights.side, "with_state": weights.with_state}
    tensors = {
        name: tensor.to(torch.float16).contiguous()
        for name, tensor in weights.tensors.items()
        if tensor.is_floating_point()
    }
    with atomic_write(path) as temporary:
        digest = digest_of(tensors, described)
        save_file(tensors, temporary, {_KEY: json.dumps({**described, _DIGEST: digest})})


def read_weights(path: Path) -> Weights:
    """Raises CheckpointError, one line that names the file, where it is not what `write_weights` writes."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        described = json.loads(metadata[_KEY])
        recorded = described.pop(_DIGEST, None)
        kinds, side, state = described["kinds"], int(described["side"]), described["with_state"]
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} has no weights of phone_widgets_tiny: {error} in its metadata") from None
    if tuple(kinds) != WIDGET_KINDS:
        raise CheckpointError(f"{path} detects other kinds of widgets ({', '.join(kinds)}); train it again")
    held = dict(tensors)  # the next line adds counters, which the file lacks
    _check_tensors(path, tensors)
    check_digest(path, held, described, recorded, SHA256)
    return Weights(tensors, side, tuple(state))


def _check_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with torch.device("meta"):
        expected = {name: tensor.shape for name, tensor in Network(len(WIDGET_KINDS)).state_dict().items()}
    counters = {name: torch.zeros(()) for name in expected if name.endswith("num_batches_tracked")}
    tensors.update(counters)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != expected:
        name = next(iter({name for name in (*expected, *found) if expected.get(name) != found.get(name)}))
        raise CheckpointError(f"{path} does not fit the network of this version: {name} differs; train it again")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{path} has values in {name} that are not numbers")
