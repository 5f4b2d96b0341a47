"""GPU, CUDA and driver: a matrix product on every GPU, compared with the CPU's."""

import os
from typing import TYPE_CHECKING

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check

if TYPE_CHECKING:
    import torch

_TOLERANCE = 1e-3
"""The error of a product in float32, relative to its largest element; TF32 and bfloat16 are coarser."""


def _gpu() -> str:
    import torch

    from vlm_agent.models.weights.precision import GpuError, installed_gpus, model_device

    try:
        device = model_device()
    except GpuError as error:
        raise BrokenError(str(error), "follow the message; `nvidia-smi` shows the driver") from error
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
    if not difference <= _TOLERANCE:
        raise BrokenError(
            f"a matrix product on {device} differs from the CPU's by {difference:.2g} of its largest element"
        )


GPU = Check(
    _gpu,
    "a matrix product in float32 on every GPU against the CPU's",
    ("train and evaluate with models of billions of parameters",),
    "run on a machine with an NVIDIA GPU (Slurm: --gres=gpu:1; containers: --nv or --gpus all)",
)
