"""Batches on their way to the device of a rank: prepared by worker processes, copied without waiting."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol, cast

import torch
from accelerate.utils import send_to_device
from torch.utils.data import DataLoader, Dataset

from vlm_agent.training.loop.preemption import leave_stopping_to_parent


class Rows(Protocol):
    """Collated batches by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> dict: ...


def load(rows: Rows, numbers: Sequence[int], workers: int, device: torch.device) -> Iterator[dict]:
    """The batches of these numbers, in their order, on the device. The call itself draws from PyTorch's generator,
    which seeds the workers."""
    on_gpu = device.type == "cuda"
    loader = DataLoader(
        cast("Dataset", rows),
        batch_size=None,
        sampler=numbers,
        collate_fn=_unchanged,
        num_workers=workers,
        worker_init_fn=leave_stopping_to_parent,
        pin_memory=on_gpu,
    )
    return map(partial(send_to_device, device=device, non_blocking=on_gpu), iter(loader))


def _unchanged(batch: Any) -> Any:
    """Without it, a DataLoader makes tensors of NumPy arrays, which stay on the host (`models.family.Processor`)."""
    return batch
