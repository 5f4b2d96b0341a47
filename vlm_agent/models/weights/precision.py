"""The device that a model computes on, and the dtype of its weights.

GPUs that PyTorch cannot use are an error, never a silent run on the CPU. `pip install torch` brings the newest CUDA
build, and an older driver makes `torch.cuda.is_available()` False: a run of eight ranks would then load eight models
into main memory. So GPUs are looked for without PyTorch, too: in the driver's files, among the devices and by
nvidia-smi. To use the CPU of a machine with GPUs, hide them: `CUDA_VISIBLE_DEVICES=`.
"""

import logging
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MethodType
from typing import TypeVar, cast

import torch
from torch import nn
from torch.nn import attention, functional
from torch.nn.attention.varlen import varlen_attn
from transformers.utils import is_flash_attn_4_available

from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line

_LOG = logging.getLogger(__name__)
_ROOT = Path("/")
_HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU; Slurm sets the last in jobs without GPUs."""

_NEEDED_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA's major version → the oldest driver of any of its minor versions (NVIDIA, "CUDA Compatibility", 2025)."""

_OLDER_DRIVERS = "pip install torch==2.13.0 torchvision==0.28.0 --index-url https://download.pytorch.org/whl/cu126"


class GpuError(UserError):
    """The machine has GPUs, and this installation of PyTorch cannot use them."""


@dataclass(frozen=True)
class InstalledGpus:
    """What the system reports. `names`: one a GPU, "GPU" where its model is unknown. `driver`: None if unknown."""

    names: tuple[str, ...]
    driver: str | None = None


def model_device() -> torch.device:
    """The GPU if PyTorch can use one, else the CPU. Raises GpuError for GPUs that it cannot use."""
    if torch.cuda.is_available():
        _check_kernels()
        return torch.device("cuda")
    if os.environ.get("CUDA_VISIBLE_DEVICES") not in _HIDDEN:
        installed = installed_gpus(_ROOT)
        if installed.names:
            raise GpuError(
                f"this machine has {len(installed.names)} GPU(s) ({installed.names[0]}) that PyTorch cannot use: "
                f"{_reason(installed.driver)}. To train or evaluate on the CPU, hide the GPUs: CUDA_VISIBLE_DEVICES= "
                "before the command"
            )
    return torch.device("cpu")


def describe_device(device: torch.device) -> str:
    """One line for a log: the device, PyTorch's build, and on a GPU the release of FlashAttention that is active."""
    if device.type != "cuda":
        hidden = ", GPUs are hidden" if installed_gpus(_ROOT).names else ""
        return f"device: CPU, {torch.get_num_threads()} threads{hidden}; PyTorch {torch.__version__}"
    properties = torch.cuda.get_device_properties(device)
    flash = "FA4" if use_fa4((properties.major, properties.minor)) else "FA2"
    return (
        f"device: {properties.name}, {properties.total_memory / 1e9:.0f} GB; PyTorch {torch.__version__}, "
        f"CUDA {torch.version.cuda}; attention: {flash}"
    )


_FA4_CAPABILITIES = (9, 10)
"""The major compute capabilities that PyTorch lets FlashAttention-4 run on: Hopper, and Blackwell of data centres."""


@cache
def use_fa4(capability: tuple[int, int]) -> bool:
    """Activates FlashAttention-4 in PyTorch's flash attention, for the whole process, where it is installed
    (`flash-attn-4`), this PyTorch has it and a GPU of `capability` runs it. Returns whether it is active.

    An installation that fails on a small row is logged, and FlashAttention-2 runs: many releases return other results
    than this PyTorch reads.
    """
    activate = getattr(attention, "activate_flash_attention_impl", None)
    if activate is None or capability[0] not in _FA4_CAPABILITIES or not is_flash_attn_4_available():
        return False
    try:
        activate("FA4")
        _attend()
    except Exception as error:  # noqa: BLE001 (its compiler's errors share no base class)
        attention.restore_flash_attention_impl()
        _LOG.warning(
            "flash-attn-4 is installed and fails, so FlashAttention-2 runs (%s: %s); install the release of the "
            "package's extra: %s",
            *(type(error).__name__, error, install_line("gpu")),
        )
        return False
    return True


def _attend() -> None:
    """Variable-length attention of a small row on the GPU, forward and backward."""
    with torch.inference_mode(False), torch.enable_grad():
        row = torch.ones(128, 1, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        bounds = torch.tensor([0, 128], device="cuda", dtype=torch.int32)
        output = varlen_attn(row, row, row, bounds, bounds, 128, 128, window_size=(-1, 0))
        torch.autograd.grad(cast("torch.Tensor", output).sum(), row)


def installed_gpus(root: Path = _ROOT) -> InstalledGpus:
    """GPUs of NVIDIA below `root`: by the kernel module's files, else by device files, else by nvidia-smi."""
    driver_files = root / "proc/driver/nvidia"
    names = tuple(_model(path) for path in sorted(driver_files.glob("gpus/*/information")))
    devices = [path for path in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    names = names or ("GPU",) * len(devices)
    version = re.search(r"NVRM version:.*?\s(\d+\.[\d.]+)", _text(driver_files / "version"))
    driver = None if version is None else version[1]
    if names and driver is not None:
        return InstalledGpus(names, driver)
    reported = _from_nvidia_smi()
    return InstalledGpus(names or reported.names, driver or reported.driver)


def _model(information: Path) -> str:
    found = re.search(r"^Model:\s*(.+)$", _text(information), re.MULTILINE)
    return "GPU" if found is None else found[1].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _from_nvidia_smi() -> InstalledGpus:
    """No GPUs where the program is missing, fails, or hangs, as it does beside some broken drivers."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return InstalledGpus(())
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603 (no shell)
    except (OSError, subprocess.SubprocessError):
        return InstalledGpus(())
    rows = [line.rpartition(",") for line in done.stdout.splitlines() if "," in line]
    return InstalledGpus(tuple(name.strip() for name, _, _ in rows), rows[0][2].strip() if rows else None)


def _reason(driver: str | None) -> str:
    cuda, build = torch.version.cuda, f"PyTorch {torch.__version__}"
    if cuda is None:
        return (
            f"{build} is a build for CPUs, and the driver is {driver or 'unknown'}; install a build for CUDA: plain "
            "`pip install --force-reinstall torch==2.13.0 torchvision==0.28.0` for driver 580 or newer, else "
            f"`{_OLDER_DRIVERS}`"
        )
    needed = _NEEDED_DRIVER.get(int(cuda.partition(".")[0]))
    if needed is not None and driver is not None and int(driver.partition(".")[0]) < needed:
        return (
            f"{build} is built for CUDA {cuda}, which needs driver {needed} or newer, and the driver is {driver}; "
            f"update the driver, or install the build for CUDA 12.6: `{_OLDER_DRIVERS}`"
        )
    return (
        f"{build} is built for CUDA {cuda}, and the driver is {driver or 'unknown'}; {_message_of_cuda()}. Possible "
        "causes: a container without GPUs (--nv, --gpus all), a job without them, CUDA_VISIBLE_DEVICES="
        f"{os.environ.get('CUDA_VISIBLE_DEVICES', '(not set)')}"
    )


def _message_of_cuda() -> str:
    """PyTorch's own reason, in one line."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return f"its message is {str(error).partition('. ')[0]!r}"
    return "torch.cuda.init() has no error"


def _check_kernels() -> None:
    """Raises GpuError for a GPU that is too old for this build, whose first kernel would fail without naming it."""
    oldest = min((int(name[3:]) for name in torch.cuda.get_arch_list() if re.fullmatch(r"sm_\d+", name)), default=0)
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < oldest:
        raise GpuError(
            f"{torch.cuda.get_device_name()} has compute capability {major}.{minor}, and PyTorch {torch.__version__} "
            f"(CUDA {torch.version.cuda}) has kernels from {oldest / 10:.1f} on; install the build for CUDA 12.6: "
            f"`{_OLDER_DRIVERS}`"
        )


Model = TypeVar("Model", bound=nn.Module)


def has_bf16() -> bool:
    """Whether the GPU, else the CPU, computes faster in bfloat16 than in float32.

    Of CPUs, those with AMX, and those of AMD with AVX512_BF16 (Zen 4), where training of `phone_vlm_tiny` takes 0.9 of
    the time, evaluation 0.7. With Intel's, training takes 1.1 to 1.6 of it (benchmarks/results/training.md).
    """
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    cpu = torch.cpu.get_capabilities()
    return cpu.get("amx_tile", False) or (cpu.get("avx512_bf16", False) and cpu["cpu_name"].startswith("AMD"))


def seen_dtype(parameter: nn.Parameter) -> torch.dtype:
    """The dtype in which a module sees its weight. Under ZeRO-3 and bfloat16, a partitioned weight of a float32
    checkpoint is float32 between the passes of its module, and bfloat16 within."""
    return getattr(parameter, "ds_tensor", parameter).dtype


def exact_depthwise(model: nn.Module) -> None:
    """Make depthwise convolutions compute in the dtype of their weights on a CPU, in place, even under autocast.

    oneDNN's backward pass takes three times as long in bfloat16 as in float32: a third of a small ConvNeXt's step.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1:
            vars(module)["forward"] = MethodType(_in_own_precision, module)


def _in_own_precision(module: nn.Conv2d, pixels: torch.Tensor) -> torch.Tensor:
    if pixels.device.type != "cpu":
        return nn.Conv2d.forward(module, pixels)
    with torch.autocast("cpu", enabled=False):
        weight = module.weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(
            pixels.to(weight.dtype), weight, module.bias, module.stride, module.padding, module.dilation, module.groups
        )


def cast_linear_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Casts the weights of linear layers to `dtype`, in place, for mixed precision without gradients.

    Autocast casts a weight at every call unless it requires a gradient, which takes a third of decoding a token of a
    small model. Results are the same. An embedding that is tied to the head keeps its own weight.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(parameter.to(dtype), requires_grad=False))


def to_dtype(model: Model, dtype: torch.dtype) -> Model:
    """The model in `dtype`, in place, except its rotary frequencies.

    Rounding them to bfloat16 changes them by up to 0.4 %, more than a radian at a distance of a thousand tokens, and
    breaks the positions of a pretrained model. transformers keeps them float32 when it loads in bfloat16; `Module.to`
    does not.
    """
    exact = {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
    model.to(dtype)
    for name, frequencies in exact.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, frequencies)
    return model


def is_quantised(model: nn.Module) -> bool:
    return any(map(is_quantised_layer, model.modules()))


def is_quantised_layer(layer: nn.Module) -> bool:
    # By name, so that bitsandbytes is needed only for quantised models. peft's layers show the weight of their base.
    return type(layer._parameters.get("weight")).__name__ in ("Params4bit", "Int8Params")


def weight_count(parameter: nn.Parameter) -> int:
    """The number of weights in a parameter before nf4 packed two into a byte and ZeRO-3 partitioned it."""
    state = getattr(parameter, "quant_state", None)
    return getattr(parameter, "ds_numel", parameter.numel()) if state is None else state.shape.numel()
