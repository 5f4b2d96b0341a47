"""From a published Auto-UI to a folder for `model.encoder_decoder.checkpoint`.

The published model is transformers' `T5ForConditionalGeneration` with three layers more: `image_dense`, `mha_layer` (an
`nn.MultiheadAttention`) and `gate_dense`. Checked against the published code: cooelf/Auto-GUI, model.py.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config

from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import json_object
from vlm_agent.models.auto_ui.model import AutoUi, AutoUiConfig, check_text_config
from vlm_agent.models.conversion import (
    CheckpointFormatError,
    Converter,
    architectures,
    refuse,
    stored_weights,
    tensors_of,
)
from vlm_agent.models.pretrained import explain_value_errors
from vlm_agent.models.weights.adapters import save_trained_weights

ARCHITECTURE = "T5ForMultimodalGeneration"
"""The name of the published class, in the config.json that it saves."""

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "spiece.model", "special_tokens_map.json", "added_tokens.json")
_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}

FUSION = ("image_dense", "mha_layer", "gate_dense")
"""The first part of the names of the layers that a T5 does not have."""

_TABLE, _HEAD = "shared.weight", "lm_head.weight"
_COPIES = (_TABLE, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Names of the table of embeddings: one matrix, which files may hold several times."""

_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A weight of early T5 checkpoints that no model reads."""

_IN_PROJECTION = "mha_layer.in_proj_"


def read(source: Path) -> Callable[[Path, Callable[[str], None]], None]:
    """See `Converter.read`; weights keep their dtype, float32 or bfloat16. The tokenizer's files are copied if `source`
    has them."""
    dtype = _check_dtype(source)
    config, weights = read_published(json_object(source / "config.json"), _read_weights(source), source)
    config.dtype = dtype

    def write(folder: Path, say: Callable[[str], None]) -> None:
        save_trained_weights(model_of(config, weights), folder)
        for file in sorted(folder.iterdir()):
            say(f"Wrote {file.name}")
        copied = [name for name in _TOKENIZER if (source / name).is_file()]
        for name in copied:
            shutil.copyfile(source / name, folder / name)
            say(f"Copied {name}")
        if not copied:
            say(f"{source} holds no tokenizer; copy that of the T5 it was trained from to the output")

    return write


def read_published(
    content: dict, published: Mapping[str, torch.Tensor], source: Path
) -> tuple[AutoUiConfig, dict[str, torch.Tensor]]:
    """The configuration and weights of this package, from the keys of config.json and the published weights by name.

    Raises CheckpointFormatError, which names them, for weights that are missing, unknown or of another shape.
    """
    try:
        config = our_configuration(content, {name: tuple(weight.shape) for name, weight in published.items()})
        weights = our_weights(published, config.tie_word_embeddings)
    except CheckpointError as error:
        raise CheckpointFormatError(f"{source}: {error}") from None
    with torch.device("meta"):
        expected = AutoUi(config).state_dict()
    if config.tie_word_embeddings:
        del expected["t5.lm_head.weight"]
    wrong = [f"{name} is missing" for name in expected.keys() - weights.keys()]
    for name, weight in weights.items():
        if name not in expected:
            wrong.append(f"{name} is unknown")
        elif weight.shape != expected[name].shape:
            shapes = tuple(weight.shape), tuple(expected[name].shape)
            wrong.append(f"{name} has shape {shapes[0]}, where config.json asks for {shapes[1]}")
    refuse(source, "Auto-UI's", sorted(wrong))
    return config, weights


def our_configuration(content: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> AutoUiConfig:
    """The configuration for the keys of the published config.json and the shapes of its weights, by name.

    Features have the size that `image_dense` takes; which extractor made them is not stored with the weights. Raises
    CheckpointError without `image_dense`, and for keys with a value that no T5 can have.
    """
    dense = shapes.get("image_dense.weight", ())
    if len(dense) != 2:
        raise CheckpointError("image_dense.weight is missing, or no matrix: these are not the weights of an Auto-UI")
    keys = {key: value for key, value in content.items() if key not in ("architectures", "torch_dtype", "dtype")}
    with explain_value_errors("config.json"):
        text = T5Config(**keys)
    check_text_config(text, "config.json")
    tied = _HEAD not in shapes or text.scale_decoder_outputs
    return AutoUiConfig(text, {"size": dense[1]}, tie_word_embeddings=tied)


def our_weights(published: Mapping[str, torch.Tensor], tied: bool) -> dict[str, torch.Tensor]:
    """The weights by the names of `AutoUi`. `tied`: the head is the table of embeddings, and is left out.

    Raises CheckpointError if the weights do not contain the table, or tables or heads that must be one differ.
    """
    copies = [name for name in (*_COPIES, *([_HEAD] if tied else [])) if name in published]
    if not copies:
        raise CheckpointError(f"{_TABLE} is missing")
    for name in copies[1:]:
        if not torch.equal(published[copies[0]], published[name]):
            raise CheckpointError(f"{name} differs from {copies[0]}, and config.json says that they are one matrix")
    ours = {"t5.shared.weight": published[copies[0]]}
    left_out = {*_COPIES, _UNUSED, *([_HEAD] if tied else [])}
    for name, weight in published.items():
        if name not in left_out:
            ours |= _renamed(name, weight)
    return ours


def _renamed(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    if name.startswith(_IN_PROJECTION):  # queries, keys and values in one matrix, or bias
        if not weight.ndim or len(weight) % 3:
            raise CheckpointError(
                f"{name} has shape {tuple(weight.shape)}, whose rows cannot be those of queries, keys and values"
            )
        kind = name.removeprefix(_IN_PROJECTION)
        parts = zip("qkv", weight.chunk(3), strict=True)
        return {f"fusion.mha_layer.{letter}_proj.{kind}": part.contiguous() for letter, part in parts}
    return {f"fusion.{name}" if name.startswith(FUSION) else f"t5.{name}": weight}


def model_of(config: AutoUiConfig, weights: dict[str, torch.Tensor]) -> AutoUi:
    """The model in evaluation mode; it shares memory with `weights`."""
    with torch.device("meta"):
        model = AutoUi(config)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    return model.eval()


def _check_dtype(source: Path) -> torch.dtype:
    """The dtype of all weights."""
    found = {stored.dtype for stored in stored_weights(source)}
    if len(found) != 1 or not found <= _DTYPES.keys():
        raise CheckpointFormatError(
            f"the weights in {source} are {', '.join(sorted(found))}; all must be F32, or all BF16. In float16, T5's "
            "activations overflow: convert weights that were trained in float32 or bfloat16"
        )
    return _DTYPES[found.pop()]


def _read_weights(source: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for file in sorted({stored.file for stored in stored_weights(source)}):
        for name, tensor in tensors_of(file):
            if name in weights:
                raise CheckpointFormatError(f"{name} is in {file} and in another file; remove the one that is not used")
            weights[name] = tensor
    return weights


def _recognises(folder: Path) -> bool:
    if ARCHITECTURE in architectures(folder):
        return True
    names = {stored.name for stored in stored_weights(folder)} if any(folder.glob("*.safetensors")) else set()
    return any(name.startswith(FUSION) for name in names)


AUTO_UI = Converter("Auto-UI", "model.encoder_decoder.checkpoint, with model.features", _recognises, read)
