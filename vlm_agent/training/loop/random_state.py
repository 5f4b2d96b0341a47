"""The state of all random number generators that a step may draw from: saved with a checkpoint, kept by
a validation."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """The state of this process, of plain values and tensors, which `torch.load` reads without running code."""
    kind, keys, *rest = cast(tuple, np.random.get_state())  # noqa: NPY002 (the state of libraries that use it)
    state = {"python": random.getstate(), "numpy": (kind, keys.tolist(), *rest), "torch": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def restore(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restores the state at exit."""
    state = random_state()
    try:
        yield
    finally:
        restore(state)
