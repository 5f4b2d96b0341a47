"""Imports of this process: torchvision beside a PyTorch for CPUs, libraries that are hidden, garbage collection."""

import atexit
import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_NEEDLESS = {
    "bitsandbytes": ("accelerate", "peft", "transformers"),
    "pandas": ("pyarrow", "vlm_agent"),  # compiled code of pyarrow looks for it in the name of its caller
    "scipy": ("transformers",),
}
"""Libraries whose import takes up to three seconds, and the packages that import them wherever they are installed."""
_is_hiding = False

# PyPI holds torchvision only as built for CUDA. Beside a PyTorch for CPUs its compiled operators do not load, and the
# imports of peft and timm fail with it. Declaring the two operators that it looks up is enough: the package calls none.
_OPERATORS = [f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")]
_DECLARED: list[Any] = []  # they live as long as it


def start_program() -> None:
    """Makes the imports of a process that runs one command a third shorter: packages do not find large libraries that
    they do not need, and garbage is collected less often. A million imported objects leave hardly any."""
    global _is_hiding
    _is_hiding = True
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)


class _Finder(PathFinder):
    """Python's finder of installed modules, without those that are hidden from the importing package (None in
    `sys.modules` is not enough: compiled code treats it as a module), and with torchvision's operators declared before
    its first own import."""

    @classmethod
    def find_spec(cls, fullname: str, *others: Any, **options: Any) -> ModuleSpec | None:
        if fullname == "torchvision.extension":
            _declare_operators()
        is_hidden = _is_hiding and fullname in _NEEDLESS and _importer() in _NEEDLESS[fullname]
        return None if is_hidden else super().find_spec(fullname, *others, **options)


def _importer() -> str:
    """The package whose code imports, or looks for, a module."""
    frame, package = sys._getframe(2).f_back, "importlib"
    while frame is not None and package == "importlib":
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        frame = frame.f_back
    return package


def _declare_operators() -> None:
    import torch

    if torch.version.cuda is None and not _DECLARED:
        _DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in _OPERATORS:
            _DECLARED[0].define(operator)


if PathFinder in sys.meta_path:
    sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
