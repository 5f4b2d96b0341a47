"""The weights of a published Auto-UI under this package's names.

The published model is transformers' `T5ForConditionalGeneration` with three layers more: `image_dense`, `mha_layer` (an
`nn.MultiheadAttention`) and `gate_dense`. Checked against the published code: cooelf/Auto-GUI, model.py.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import T5Config

from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.model import AutoUiConfig, check_text_config
from vlm_agent.models.pretrained import explain_value_errors

FUSION = ("image_dense", "mha_layer", "gate_dense")
"""The first part of the names of the layers that a T5 does not have."""

_TABLE, _HEAD = "shared.weight", "lm_head.weight"
_COPIES = (_TABLE, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Names of the table of embeddings: one matrix, which files may hold several times."""

_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A weight of early T5 checkpoints that no model reads."""

_IN_PROJECTION = "mha_layer.in_proj_"


def our_configuration(content: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> AutoUiConfig:
    """Our configuration from the published config.json and the shapes of its weights, by name.

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
