"""What the ranks of a run tell each other; in a run of one process, nothing.

Every function that talks is a collective: all ranks call it, in the same order, or all of them wait for ever.
"""

import torch
from torch import distributed


def count() -> int:
    return distributed.get_world_size() if _together() else 1


def number() -> int:
    return distributed.get_rank() if _together() else 0


def wait() -> None:
    """Returns when every rank is here."""
    if _together():
        distributed.barrier()


def agreed(flag: bool) -> bool:
    """Whether any rank says so."""
    return bool(highest(int(flag)))


def highest(value: int) -> int:
    """The highest value that a rank has."""
    if not _together():
        return value
    told = torch.tensor(value, dtype=torch.int64, device=_device())
    distributed.all_reduce(told, distributed.ReduceOp.MAX)
    return int(told)


def of_first(value: int) -> int:
    """The value that rank 0 has; the others' are not looked at."""
    if not _together():
        return value
    told = torch.tensor(value, dtype=torch.int64, device=_device())
    distributed.broadcast(told, 0)
    return int(told)


def summed(values: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, in place."""
    if _together():
        distributed.all_reduce(values)
    return values


def gathered(texts: list[str]) -> list[str]:
    """The texts of all ranks, in the order of the ranks."""
    if not _together():
        return texts
    told = [None] * count()
    distributed.all_gather_object(told, texts)
    return [text for rank in told for text in rank]


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
