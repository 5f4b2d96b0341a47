"""Models with seeded random weights, and their LoRA adapters. The peer builds its model here too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.training.shapes import Shape

LORA_RANK, LORA_ALPHA = 16, 32
ADAPTED = r".*language_model\..*_proj"
"""Every linear layer of the language model and nothing of the vision tower, in both families."""


def build(
    shape: Shape,
    special: dict[str, int],
    model_class: type | None = None,
    device: str = "cpu",
    dtype=torch.float32,
    quantisation: str | None = None,
):
    """A PeftModel in training mode: frozen weights of `dtype`, an adapter (and projector) of float32.

    `special` are the tokenizer's ids that Qwen's config names; `model_class` is transformers' own where None;
    `quantisation` is of the language model of the package's own class.
    Adapters start away from zero on both sides, so that every one of them has a gradient to compare.
    """
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    with torch.device(device), default_dtype(dtype):
        model = _llama_vit(shape) if shape.family == "llama_vit" else _qwen(shape, special, model_class)
    model.requires_grad_(False)
    if quantisation is not None:
        from vlm_agent.models.weights.quantisation import quantise

        quantise(model, quantisation)
    saved = ["projector"] if shape.family == "llama_vit" else None
    lora = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=ADAPTED, modules_to_save=saved)
    model = get_peft_model(model, lora)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        if "lora_B" in name:
            parameter.data.copy_(torch.empty(parameter.shape).normal_(std=0.01, generator=generator))
    return model.train()


def timed_modules(model, shape: Shape) -> tuple[torch.nn.Module, torch.nn.Module]:
    """(vision tower, decoder without its head) of a model from `build`."""
    base = model.get_base_model()
    if shape.family == "llama_vit":
        return base.vision, base.language_model.model
    return base.model.visual, base.model.language_model


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors are created in this dtype rather than cast to it: a 7B model in float32 needs twice the memory."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _llama_vit(shape: Shape):
    from transformers import AutoConfig

    from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig

    text = AutoConfig.for_model("llama", vocab_size=shape.vocabulary, tie_word_embeddings=False, **shape.text)
    # A ViT's positions are a square that it resizes to the screen.
    vision = AutoConfig.for_model("vit", image_size=min(shape.screen), **shape.vision)
    return LlamaViT(LlamaViTConfig(vision, text, screen_size=shape.screen, visual_grid=shape.grid))


def _qwen(shape: Shape, special: dict[str, int], model_class: type | None):
    from transformers import AutoConfig, AutoModelForImageTextToText

    marks = {"bos_token_id": None, "eos_token_id": None}  # transformers' defaults are ids of the real tokenizer
    text = {"vocab_size": shape.vocabulary} | marks | shape.text
    config = AutoConfig.for_model(
        shape.family, text_config=text, vision_config=shape.vision, tie_word_embeddings=False, **special
    )
    return AutoModelForImageTextToText.from_config(config) if model_class is None else model_class(config)
