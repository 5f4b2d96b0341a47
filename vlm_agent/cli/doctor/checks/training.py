"""PyTorch: one optimiser step on the device that `train` uses."""

from vlm_agent.cli.doctor.check import BrokenError, Check
from vlm_agent.files.installation import requirements_option


def _training() -> str:
    import torch
    from torch import nn

    from vlm_agent.models.weights.precision import GpuError, describe_device, model_device

    try:
        device = model_device()
    except GpuError as error:
        raise BrokenError(str(error), "follow the message; `nvidia-smi` shows the driver") from error
    torch.manual_seed(0)
    layer, x = nn.Linear(16, 1).to(device), torch.randn(64, 16, device=device)
    target = x.sum(-1, keepdim=True)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = nn.functional.mse_loss(layer(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0] / 2:
        raise BrokenError(f"the loss of a linear layer does not fall in 20 steps: {losses[0]:.3g} → {losses[-1]:.3g}")
    return describe_device(device).removeprefix("device: ")


TRAINING = Check(
    _training,
    "20 optimiser steps of a linear layer on the device of `train`",
    ("train", "evaluate", "act", "merge", "demo"),
    f"install the tested versions: pip install {requirements_option('requirements.txt')}",
    is_required=True,
)
