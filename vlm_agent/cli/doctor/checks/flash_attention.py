"""flash-attn: causal attention on the GPU, compared with PyTorch's."""

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check, require_package
from vlm_agent.files.installation import requirements_option

_TOLERANCE = 0.02
"""The error of attention in bfloat16, which has 8 significant bits; values are of order 1."""


def _flash_attention() -> str:
    require_package("flash_attn", "flash-attn")
    import torch

    if not torch.cuda.is_available():
        raise AbsentError("flash-attn is installed and needs a CUDA GPU", "see the check gpu")
    from importlib.metadata import version

    from flash_attn import flash_attn_func

    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 128, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    ours = flash_attn_func(query, key, value, causal=True).transpose(1, 2)
    query, key, value = (states.transpose(1, 2) for states in (query, key, value))
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    difference = (ours - theirs).abs().max().item()
    if not difference <= _TOLERANCE:
        raise BrokenError(f"its attention differs from PyTorch's by {difference:.2g}")
    return f"flash-attn {version('flash-attn')}; differs from PyTorch's attention by {difference:.1g}"


FLASH_ATTENTION = Check(
    _flash_attention,
    "causal attention in bfloat16 on the GPU against PyTorch's",
    ("no command: without it, train and evaluate use the flash attention of PyTorch",),
    f"optional: MAX_JOBS=8 pip install --no-build-isolation {requirements_option('requirements-gpu.txt')}",
)
