"""Imports of this process: torchvision beside a PyTorch for CPUs, libraries that are left out, garbage collection."""

import atexit
import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_LEFT_OUT: set[str] = set()

# The package index holds torchvision only as built for CUDA. Beside a CPU build of PyTorch its compiled operators do
# not load and its import fails, and with it the imports of peft and timm. Declaring the two operators that the import
# looks up is enough: the package calls neither.
_OPERATORS = [f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")]
_DECLARED: list[Any] = []
"""The declarations live as long as this list."""


def start_program() -> None:
    """Makes the imports of a process that runs one command a third shorter.

    PyTorch and transformers leave a million objects and hardly any garbage, so the collector looks for it less often
    than Python's default, and not at all at the exit. bitsandbytes waits until a model is quantised (`bring_back`).
    """
    gc.set_threshold(50_000)
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
