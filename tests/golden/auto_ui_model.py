"""Compares Auto-UI's model here with logits and losses of the published one.

A file holds tiny random weights under their published names, inputs with padding, and the published outputs, for each
form of screen features; its metadata hold the configuration. Positions with a label of -100 have no loss. Labels that
are padded with 0 instead, as the published training pads them, are learned: then the padding is part of both losses.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open

from vlm_agent.models.auto_ui.convert import model_of, read_published
from vlm_agent.models.auto_ui.model import AutoUi

TOLERANCE = 1e-4
"""The largest accepted difference of a logit and of a loss, all in float32."""

_FEATURES = "inputs.image_ids."


def model_differences(path: Path) -> dict[str, float]:
    """What was compared → the largest absolute difference. NaN where an output is."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        content = json.loads(file.metadata()["config"])
    weights = {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}
    model = model_of(*read_published(content, weights, path))
    found = {}
    for name, features in tensors.items():
        if name.startswith(_FEATURES):
            form = name.removeprefix(_FEATURES)
            logits, loss = outputs(model, tensors, features if features.dim() == 3 else features[:, None])
            found[f"{form} logits"] = (logits - tensors[f"outputs.logits.{form}"]).abs().max().item()
            found[f"{form} loss"] = (loss - tensors[f"outputs.loss.{form}"].reshape(())).abs().item()
    return found


@torch.no_grad()
def outputs(
    model: AutoUi, tensors: dict[str, torch.Tensor], features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (B, T, vocabulary) at every position, padding included, and the mean loss ()."""
    ids, mask, labels = (tensors[f"inputs.{name}"] for name in ("input_ids", "attention_mask", "labels"))
    hidden = model.decode(model.shifted(labels), model.encode(ids, mask, features), mask)
    output = model(input_ids=ids, attention_mask=mask, features=features, shift_labels=labels)
    return model.logits(hidden), output.loss
