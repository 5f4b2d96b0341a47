"""In what numbers a model is kept, and whether the processor computes in bfloat16: one that does not gives the same
results, many times slower.
"""

import torch
from torch import nn


def has_bf16() -> bool:
    """Whether a GPU, or else this machine's CPU, has bfloat16 arithmetic of its own."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch has no public word for it; measured without: a training step of the tiny recipe takes five times as long.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model in `dtype`, in place, but for its rotary frequencies.

    Rounded to bfloat16 these are up to 0.4 % off, which at a distance of a thousand tokens is more than a radian: a
    pretrained model would no longer know how far apart its tokens are. transformers keeps them float32 where it loads
    in bfloat16; `Module.to` does not.
    """
    exact = {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
    model.to(dtype)
    for name, frequencies in exact.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, frequencies)
    return model
