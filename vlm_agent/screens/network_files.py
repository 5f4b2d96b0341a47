"""The safetensors files of the small networks that come with the package."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from vlm_agent.errors import CheckpointError


def check_shipped(path: Path, name: str, sha256: str) -> None:
    """Raises CheckpointError where the package's weights of `name` are missing or are not those of this version."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); reinstall vlm-agent") from None
    if found != sha256:
        raise CheckpointError(
            f"{path} is not the {name} of this version (sha256 {found[:12]}…, expected {sha256[:12]}…); "
            "reinstall vlm-agent"
        )


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """The metadata and the tensors of a file. Raises CheckpointError where it is missing or damaged."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from None


def halved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as they are written: float16 in place of float32."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return {name: one.half() if one.is_floating_point() else one for name, one in contiguous.items()}


def load_tensors(path: Path, tensors: Mapping[str, torch.Tensor], network: nn.Module) -> None:
    """Loads the tensors of a file into `network`, in float32.

    Raises CheckpointError, one line that names the file, where names or shapes differ, or a value is not finite.
    """
    if broken := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
        raise CheckpointError(f"{path} has values in {broken[0]} that are not numbers")
    expected, found = ({name: one.shape for name, one in state.items()} for state in (network.state_dict(), tensors))
    if different := [name for name in (*expected, *found) if expected.get(name) != found.get(name)]:
        raise CheckpointError(
            f"{path} does not fit the network of this version: {different[0]} differs; train it again"
        )
    network.load_state_dict({name: one.float() if one.is_floating_point() else one for name, one in tensors.items()})
