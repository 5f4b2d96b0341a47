"""Communication between the ranks of a run; without a process group each function returns its own value.

Every function but `count` and `number` is a collective: all ranks must call it in the same order, or all of them hang.
"""

import gc
import os
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed.nn  # before a group exists: its functions keep the group of that time as a default (`leave`)
from torch import distributed

Value = TypeVar("Value")

TIMEOUT = timedelta(hours=1)
"""How long a rank waits for the others before the run ends. Rank 0 alone writes the weights of a checkpoint, which
takes minutes for a large model on a network file system; PyTorch's and DeepSpeed's defaults are 10 to 30 minutes."""


def join(device: torch.device) -> None:
    """Connects the ranks that a launcher has started, if there are several."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not _is_distributed():
        on_gpu = device.type == "cuda"
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo", timeout=TIMEOUT, device_id=device if on_gpu else None
        )


def count() -> int:
    return distributed.get_world_size() if _is_distributed() else 1


def number() -> int:
    return distributed.get_rank() if _is_distributed() else 0


def wait() -> None:
    """A barrier."""
    if _is_distributed():
        distributed.barrier()


def leave() -> None:
    """Waits for the other ranks and destroys the process group; the last call before a rank exits.

    A launcher ends the remaining ranks some minutes after the first exit, so a rank may not exit while another one
    still saves. Destroying the group ends gloo's threads: one that releases a tensor while the interpreter shuts down
    aborts the process ("terminate called without an active exception", PyTorch #179291). The threads end only when
    nothing refers to the group any more. A DDP model refers to it, so the caller drops its engine before; its cycles
    are collected here. Where DDP's reducer is the last to refer to the group, it waits for the threads with the GIL
    held, and a thread that waits for the GIL to release a tensor never ends: the rank hangs at its exit.
    """
    wait()
    if _is_distributed():
        gc.collect()
        distributed.destroy_process_group()


def highest_of_each(values: torch.Tensor) -> list[int]:
    """The highest values of all ranks, int64 (N,) on the run's device, element by element. Waits for the device once;
    overwrites `values`."""
    if _is_distributed():
        distributed.all_reduce(values, distributed.ReduceOp.MAX)
    return values.tolist()


def highest(value: int) -> int:
    """The highest value of all ranks."""
    return highest_of_each(torch.tensor([value], device=_device()))[0] if _is_distributed() else value


def agree(value: int) -> bool:
    """Whether all ranks have the same value."""
    return highest(value) == -highest(-value)


def from_rank_0(value: Value) -> Value:
    """The value of rank 0, on every rank; any object that can be pickled."""
    if not _is_distributed():
        return value
    values = [value]
    distributed.broadcast_object_list(values, 0, device=_device())
    return values[0]


def summed(values: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, in place."""
    if _is_distributed():
        distributed.all_reduce(values)
    return values


def gathered(values: list[Value]) -> list[Value]:
    """The values of all ranks, in rank order; any objects that can be pickled."""
    if not _is_distributed():
        return values
    by_rank: list[list[Value]] = [[] for _ in range(count())]
    distributed.all_gather_object(by_rank, values)
    return [value for rank in by_rank for value in rank]


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
