"""What GPUs can do: peak arithmetic and memory, from their makers' data sheets.

Peaks are those of dense matrix products on tensor cores with float32 sums, without structured sparsity (data sheets
like to print twice that), and of plain float32, which PyTorch uses for float32 unless TF32 is switched on.
"""

import difflib
from dataclasses import dataclass

from vlm_agent.errors import UserError


class HardwareError(UserError):
    """A GPU that is not known, or that cannot run what was asked of it."""


@dataclass(frozen=True)
class Gpu:
    """`bf16` and `fp32`: peak FLOP/s, None if unsupported. `memory`: nominal bytes. `device_names`: the results of
    `torch.cuda.get_device_name`. `source`: the data sheet."""

    name: str
    bf16: float | None
    fp32: float
    memory: int
    device_names: tuple[str, ...]
    source: str

    @property
    def mfu(self) -> float:
        """The MFU to expect of LoRA on a 7B model as this package runs it, without gradient checkpointing.

        Measured on one H200: 31 to 35 %. Assumed for the others: docs/training.md has the figures that it lies below.
        GPUs with faster tensor cores spend a larger share of a step on the operations between matrix products.
        """
        return 0.3 if self.bf16 is not None and self.bf16 > 700e12 else 0.4

    def peak(self, bf16: bool) -> float:
        """FLOP/s in bfloat16, else in float32. Raises HardwareError if the GPU does not support bfloat16."""
        if not bf16:
            return self.fp32
        if self.bf16 is None:
            raise HardwareError(f"{self.name} has no bfloat16; choose another GPU, or train with --training.bf16 false")
        return self.bf16


def _gpu(name: str, bf16: float | None, fp32: float, gigabytes: int, source: str, *device_names: str) -> Gpu:
    half = None if bf16 is None else bf16 * 1e12
    devices = tuple(rest if rest.startswith("Tesla") else f"NVIDIA {rest}" for rest in device_names)
    return Gpu(name, half, fp32 * 1e12, gigabytes * 10**9, devices, source)


_A100 = "NVIDIA A100 data sheet, 2021"
_AMPERE = "NVIDIA Ampere GA102 whitepaper, 2021"
_H100 = "NVIDIA H100 data sheet, 2023"
_V100 = "NVIDIA V100 data sheet, 2020"

GPUS = (
    _gpu("B200", 2250, 75, 180, "NVIDIA HGX B200 data sheet, 2024", "B200"),
    _gpu("H200", 989.4, 66.9, 141, "NVIDIA H200 data sheet, 2024", "H200"),
    _gpu("GH200", 989.4, 66.9, 96, "NVIDIA GH200 data sheet, 2023", "GH200 480GB"),
    _gpu("H100", 989.4, 66.9, 80, _H100, "H100 80GB HBM3"),
    _gpu("H100-NVL", 835.5, 60, 94, _H100, "H100 NVL"),
    _gpu("H100-PCIe", 756, 51.2, 80, "NVIDIA H100 PCIe product brief, 2022", "H100 PCIe"),
    _gpu("A100-80", 312, 19.5, 80, _A100, "A100-SXM4-80GB", "A100 80GB PCIe"),
    _gpu("A100-40", 312, 19.5, 40, _A100, "A100-SXM4-40GB", "A100-PCIE-40GB"),
    _gpu("L40S", 362, 91.6, 48, "NVIDIA L40S data sheet, 2023", "L40S"),
    _gpu("L4", 121, 30.3, 24, "NVIDIA L4 data sheet, 2023", "L4"),
    _gpu("A40", 149.7, 37.4, 48, "NVIDIA A40 data sheet, 2021", "A40"),
    _gpu("A10", 125, 31.2, 24, "NVIDIA A10 data sheet, 2021", "A10"),
    _gpu("RTX-6000-Ada", 364.2, 91.1, 48, "NVIDIA RTX 6000 Ada data sheet, 2023", "RTX 6000 Ada Generation"),
    _gpu("A6000", 154.8, 38.7, 48, _AMPERE, "RTX A6000"),
    _gpu("4090", 165.2, 82.6, 24, "NVIDIA Ada GPU architecture whitepaper, 2022", "GeForce RTX 4090"),
    _gpu("3090", 71, 35.6, 24, _AMPERE, "GeForce RTX 3090"),
    _gpu("V100-32", None, 15.7, 32, _V100, "V100-SXM2-32GB", "Tesla V100-SXM2-32GB"),
    _gpu("V100-16", None, 15.7, 16, _V100, "V100-SXM2-16GB", "Tesla V100-SXM2-16GB"),
)
_SHORT = {"a100": "a100-80", "v100": "v100-32"}


def find_gpu(name: str) -> Gpu:
    """The GPU of a name in any case: "h100", "A100-40", "rtx 4090". HardwareError lists the known names."""
    wanted = name.lower().replace(" ", "-").removeprefix("nvidia-").removeprefix("geforce-")
    wanted = _SHORT.get(wanted, wanted)
    names = {gpu.name.lower(): gpu for gpu in GPUS}
    for spelling in (wanted, wanted.removeprefix("rtx-")):
        if spelling in names:
            return names[spelling]
    nearest = difflib.get_close_matches(wanted, names, n=1, cutoff=0)[0]
    known = ", ".join(gpu.name for gpu in GPUS)
    raise HardwareError(f"--gpu {name}: not in the table; did you mean {names[nearest].name}? Known: {known}")


def gpu_of_device(device_name: str) -> Gpu | None:
    """The GPU of a result of `torch.cuda.get_device_name`; None for one that is not in the table, and for a MIG part,
    whose peak differs."""
    return next((gpu for gpu in GPUS if device_name in gpu.device_names), None)
