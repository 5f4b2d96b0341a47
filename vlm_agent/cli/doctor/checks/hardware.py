"""PyTorch, GPUs and the libraries that compute on them: each check compares a small computation with a known result."""

import copy
import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check, require_package
from vlm_agent.files.installation import install_line, requirements_option
from vlm_agent.models.serving import free_port

if TYPE_CHECKING:
    import torch


def _model_device() -> "torch.device":
    """The device of `train`. Raises BrokenError for GPUs that PyTorch cannot use."""
    from vlm_agent.models.weights.precision import GpuError, model_device

    try:
        return model_device()
    except GpuError as error:
        raise BrokenError(str(error), "follow the message; `nvidia-smi` shows the driver") from error


def _training() -> str:
    import torch
    from torch import nn

    from vlm_agent.models.weights.precision import describe_device

    device = _model_device()
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


_PRODUCT_ERROR = 1e-3
"""The error of a product in float32, relative to its largest element; TF32 and bfloat16 are coarser."""


def _gpu() -> str:
    import torch

    from vlm_agent.models.weights.precision import installed_gpus

    device = _model_device()
    installed = installed_gpus()
    if device.type == "cpu":
        if installed.names:
            hidden = os.environ["CUDA_VISIBLE_DEVICES"]
            raise AbsentError(
                f"CUDA_VISIBLE_DEVICES={hidden} hides {len(installed.names)} GPU(s)", "unset CUDA_VISIBLE_DEVICES"
            )
        raise AbsentError("neither the driver's files nor nvidia-smi report an NVIDIA GPU")
    for index in range(torch.cuda.device_count()):
        _check_product(torch.device("cuda", index))
    names = sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
    return (
        f"{torch.cuda.device_count()} × {', '.join(names)}; CUDA {torch.version.cuda}, "
        f"driver {installed.driver or 'unknown'}"
    )


def _check_product(device: "torch.device") -> None:
    import torch

    torch.manual_seed(0)
    one, other = torch.randn(512, 512), torch.randn(512, 512)
    expected = one @ other
    difference = ((one.to(device) @ other.to(device)).cpu() - expected).abs().max() / expected.abs().max()
    if not difference <= _PRODUCT_ERROR:
        raise BrokenError(
            f"a matrix product on {device} differs from the CPU's by {difference:.2g} of its largest element"
        )


GPU = Check(
    _gpu,
    "a matrix product in float32 on every GPU against the CPU's",
    ("train and evaluate with models of billions of parameters",),
    "run on a machine with an NVIDIA GPU (Slurm: --gres=gpu:1; containers: --nv or --gpus all)",
)


_BFLOAT16_ERROR = 0.02
"""The error of a product of bfloat16 matrices, which have 8 significant bits, relative to its largest element."""


def _bfloat16() -> str:
    import torch

    from vlm_agent.models.weights.precision import has_bf16, model_device

    device = model_device()
    if not has_bf16():
        lacks = "this CPU lacks AMX and AMD's bfloat16" if device.type == "cpu" else "this GPU is older than Ampere"
        raise AbsentError(f"{lacks}: bfloat16 works and is slower than float32")
    torch.manual_seed(0)
    one, other = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device)
    expected = one @ other
    product = (one.bfloat16() @ other.bfloat16()).float()
    difference = ((product - expected).abs().max() / expected.abs().max()).item()
    if not difference <= _BFLOAT16_ERROR:
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


_LEARNING_RATE = 0.1
_STEP_ERROR = 1e-5
_CONFIG = {
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
}


def _deepspeed() -> str:
    require_package("deepspeed")
    ranks = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    os.environ |= {name: str(value) for name, value in ranks.items()}

    import torch
    from torch import nn

    from vlm_agent.models.weights.precision import model_device
    from vlm_agent.training.zero import start_deepspeed

    device = model_device()
    start_deepspeed()

    import deepspeed

    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8).to(device), torch.randn(4, 8, device=device)
    expected = copy.deepcopy(layer)
    engine, *_ = deepspeed.initialize(
        model=layer, optimizer=torch.optim.SGD(layer.parameters(), _LEARNING_RATE), config=_CONFIG
    )
    engine.backward(engine(x).square().mean())
    engine.step()

    optimizer = torch.optim.SGD(expected.parameters(), _LEARNING_RATE)
    expected(x).square().mean().backward()
    optimizer.step()
    difference = (layer.weight - expected.weight).abs().max().item()
    if not difference <= _STEP_ERROR:
        raise BrokenError(f"a step of ZeRO-2 differs from PyTorch's by {difference:.2g}")
    return f"DeepSpeed {version('deepspeed')}, {'gloo' if device.type == 'cpu' else 'nccl'}"


DEEPSPEED = Check(
    _deepspeed,
    "a step of ZeRO-2 on one process against PyTorch's",
    ("train with training.deepspeed",),
    install_line("deepspeed"),
)
