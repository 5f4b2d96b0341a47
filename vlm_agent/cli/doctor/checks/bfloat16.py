"""bfloat16: native arithmetic of the device that trains, and the error of a matrix product."""

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check

_TOLERANCE = 0.02
"""The error of a product of bfloat16 matrices, which have 8 significant bits, relative to its largest element."""


def _bfloat16() -> str:
    import torch

    from vlm_agent.models.weights.precision import has_bf16, model_device

    device = model_device()
    if not has_bf16():
        lacks = "this CPU has no AMX" if device.type == "cpu" else "this GPU is older than Ampere"
        raise AbsentError(f"{lacks}: bfloat16 works and is slower than float32")
    torch.manual_seed(0)
    one, other = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device)
    expected = one @ other
    product = (one.bfloat16() @ other.bfloat16()).float()
    difference = ((product - expected).abs().max() / expected.abs().max()).item()
    if not difference <= _TOLERANCE:
        raise BrokenError(
            f"a matrix product in bfloat16 differs from float32 by {difference:.2g} of its largest element"
        )
    return f"native on this {'CPU' if device.type == 'cpu' else 'GPU'}; error of a matrix product {difference:.1g}"


BFLOAT16 = Check(
    _bfloat16,
    "a matrix product in bfloat16 against float32",
    ("train with training.bf16", "evaluate --agent.bf16 true"),
    "train with `--training.bf16 false` (or auto), evaluate without --agent.bf16",
)
