"""The weights of `phone_icons_tiny` in a file: float16 tensors, and the meanings of the outputs as metadata."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write, share_as_created
from vlm_agent.files.weight_files import check_digest, digest_of
from vlm_agent.screens.icons.meanings import MEANINGS
from vlm_agent.screens.icons.tiny.network import Network

WEIGHTS = "model.safetensors"
_FORMAT, _DIGEST = "phone_icons_tiny 1", "sha256"
SHA256 = "e52ffee6057d6f6d737063f819585b23c598cc7e4c62825f61558402ae249615"
"""SHA-256 of the package's file, which the card in its folder and all published results refer to."""


def file_of(path: str) -> Path:
    """The file of weights that a path names: itself, or that in a run's folder."""
    return Path(path) / WEIGHTS if Path(path).is_dir() else Path(path)


def write(network: Network, meanings: list[str], path: Path) -> None:
    tensors = {name: _halved(tensor) for name, tensor in network.state_dict().items()}
    with atomic_write(path) as temporary:
        notes = {"format": _FORMAT, "meanings": json.dumps(meanings)}
        save_file(tensors, temporary, notes | {_DIGEST: digest_of(tensors, notes)})
        share_as_created(temporary)


def _halved(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().contiguous()
    return tensor.half() if tensor.is_floating_point() else tensor


def read(path: Path) -> tuple[Network, list[str]]:
    """The network, in float32 for inference, and the meanings of its outputs.

    Raises CheckpointError where the file is missing, damaged, of another format or network, or names an
    unknown meaning.
    """
    try:
        with safe_open(path, "pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if notes.get("format") != _FORMAT:
        raise CheckpointError(f"{path} does not hold weights of phone_icons_tiny")
    recorded = notes.pop(_DIGEST, None)
    try:
        meanings = list(json.loads(notes["meanings"]))
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} has no meanings in its metadata: {error}") from None
    if unknown := [name for name in meanings if name not in MEANINGS]:
        raise CheckpointError(f"{path} has meanings that this version lacks: {', '.join(unknown)}")
    network = Network(len(meanings))
    if broken := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
        raise CheckpointError(f"{path} has values in {broken[0]} that are not numbers")
    expected, found = ({name: one.shape for name, one in state.items()} for state in (network.state_dict(), tensors))
    if different := [name for name in (*expected, *found) if expected.get(name) != found.get(name)]:
        raise CheckpointError(f"{path} does not fit the network of this version: {different[0]} differs")
    check_digest(path, tensors, notes, recorded, SHA256)
    network.load_state_dict(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    )
    return network.eval(), meanings
