"""Imports of this process: torchvision beside a PyTorch for CPUs, libraries that are left out, garbage collection."""

import atexit
import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_LEFT_OUT: set[str] = set()

# PyPI holds torchvision only as built for CUDA. Beside a PyTorch for CPUs its compiled operators do not load, and the
# imports of peft and timm fail with it. Declaring the two operators that it looks up is enough: the package calls none.
_OPERATORS = [f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")]
_DECLARED: list[Any] = []
"""The declarations live as long as this list."""


def start_program() -> None:
    """Makes the imports of a process that runs one command a third shorter. They leave a million objects and hardly any
    garbage, so it is collected less often, and not at the exit. bitsandbytes waits for a model that is quantised."""
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    leave_out("pandas", "bitsandbytes")


def leave_out(*libraries: str) -> None:
    """Hides installed libraries from this process. pyarrow imports pandas to check for pandas types, and peft imports
    bitsandbytes, with PyTorch's compiler, wherever they are installed; these imports take seconds."""
    _LEFT_OUT.update(libraries)


def bring_back(library: str) -> bool:
    """Whether the library was hidden. It is not afterwards."""
    was_hidden = library in _LEFT_OUT
    _LEFT_OUT.discard(library)
    return was_hidden


class _Finder(PathFinder):
    """Python's finder of installed modules, without those that are left out (None in `sys.modules` is not enough:
    compiled code treats it as a module), and with torchvision's operators declared before its first own import."""

    @classmethod
    def find_spec(cls, fullname: str, *others: Any, **options: Any) -> ModuleSpec | None:
        if fullname == "torchvision.extension":
            _declare_operators()
        return None if fullname in _LEFT_OUT else super().find_spec(fullname, *others, **options)


def _declare_operators() -> None:
    import torch

    if torch.version.cuda is None and not _DECLARED:
        _DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in _OPERATORS:
            _DECLARED[0].define(operator)


if PathFinder in sys.meta_path:
    sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
