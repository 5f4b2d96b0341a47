"""Tiny random checkpoints of the vision towers that extractors read, with the processors they are published with."""

from pathlib import Path

import torch
from transformers import BitImageProcessorPil as DinoImageProcessorPil
from transformers import (
    Blip2Config,
    Blip2ForConditionalGeneration,
    BlipImageProcessorPil,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    Dinov2Config,
    Dinov2Model,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

SIDE = 56
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 14,
}
_TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 99}
_TEXT |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_BLIP = {
    "vision_config": _VISION,
    "qformer_config": _TEXT | {"intermediate_size": 48, "encoder_hidden_size": 32},
    "text_config": _TEXT | {"model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32},
    "num_query_tokens": 4,
}
_DINO = {key: value for key, value in _VISION.items() if key != "intermediate_size"} | {"mlp_ratio": 2}

PROCESSORS = {
    "blip2": lambda: BlipImageProcessorPil(size={"height": SIDE, "width": SIDE}),
    "clip": lambda: CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
    "vit": lambda: ViTImageProcessorPil(size={"height": SIDE, "width": SIDE}),
    "dinov2": lambda: DinoImageProcessorPil(
        size={"shortest_edge": 64},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ),
}
"""Extractor → the image processor of its checkpoint, at the tiny size."""


def build(extractor: str) -> PreTrainedModel:
    """The whole model that contains an extractor's tower, as published: BLIP-2 with its language model, and so on."""
    torch.manual_seed(0)
    if extractor == "blip2":
        model: PreTrainedModel = Blip2ForConditionalGeneration(Blip2Config(**_BLIP))
    elif extractor == "clip":
        model = CLIPModel(CLIPConfig(vision_config=_VISION, text_config=_TEXT | {"intermediate_size": 48}))
    elif extractor == "vit":
        model = ViTForImageClassification(ViTConfig(**_VISION))
    else:
        model = Dinov2Model(Dinov2Config(**_DINO))
    for parameter in model.parameters():  # tables that start at zero would hide mistakes
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def write(extractor: str, folder: Path, processor: bool = True, **options) -> Path:
    """A checkpoint of `build`, with its image processor. `options` are those of `save_pretrained`."""
    build(extractor).save_pretrained(folder, **options)
    if processor:
        PROCESSORS[extractor]().save_pretrained(folder)
    return folder


def reference(extractor: str, model: PreTrainedModel, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(pooled (N, D), patches (N, T, D)) by transformers' own model from normalised pixels."""
    with torch.inference_mode():
        if extractor == "vit":
            hidden = model.vit(pixels).last_hidden_state
            return hidden[:, 0], hidden[:, 1:]
        tower = getattr(model, "vision_model", model)
        output = tower(pixels)
    return output.pooler_output, output.last_hidden_state[:, 1:]
