"""Which attention kernel runs: flash-attn where it is installed and a GPU is there, PyTorch's own otherwise."""

from importlib.util import find_spec

import torch

from vlm_agent.models.llama_vit import LlamaViT


def choose_attention(model: LlamaViT) -> LlamaViT:
    """Set both sub-models' attention, in place; a composite of ready-made models forgets theirs.

    flash-attn computes in half precision only, so a float32 model keeps PyTorch's.
    """
    flash = find_spec("flash_attn") is not None and torch.cuda.is_available() and model.dtype != torch.float32
    for part in (model.vision, model.language_model):
        if flash and part._supports_flash_attn:
            part.set_attn_implementation("flash_attention_2")
        elif part._supports_sdpa:
            part.set_attn_implementation("sdpa")
    return model
