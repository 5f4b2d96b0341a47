"""Imports of this process: what needs preparation, what is installed but left out, and garbage collection."""

import atexit
import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_LEFT_OUT: set[str] = set()


def start_program() -> None:
    """Makes the imports of a process that runs one command a third shorter.

    PyTorch and transformers leave a million objects and hardly any garbage, so the collector looks for it less often
    than Python's default, and not at all at the exit. bitsandbytes waits until a model is quantised (`bring_back`).
    """
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    leave_out("pandas", "bitsandbytes")


def leave_out(*libraries: str) -> None:
    """Hides libraries from this process, for which they then are not installed.

    pyarrow imports pandas, if it is installed, to check for pandas types; peft imports bitsandbytes, with PyTorch's
    compiler. These imports take seconds.
    """
    _LEFT_OUT.update(libraries)


def bring_back(library: str) -> bool:
    """Whether the library was hidden. It is not afterwards."""
    was_hidden = library in _LEFT_OUT
    _LEFT_OUT.discard(library)
    return was_hidden


class _Finder(PathFinder):
    """Python's finder of installed modules, except that it does not find what is left out. (None in `sys.modules` is
    not enough: compiled code treats it as a module.)

    The first module that torchvision imports of its own looks up operators, which are declared before: see
    `torch_operators`. transformers, peft and timm import torchvision.
    """

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _LEFT_OUT:
            return None
        if fullname == "torchvision.extension":
            import vlm_agent.files.torch_operators  # noqa: F401
        return super().find_spec(fullname, path, target)


if PathFinder in sys.meta_path:
    sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
