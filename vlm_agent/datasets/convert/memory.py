"""What a process that converts does without: giving memory back after each screen, and pandas."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 1 << 25  # the most that glibc takes (mallopt(3))
_KEPT = 1 << 28


def keep_freed_memory() -> None:
    """Lets glibc keep freed blocks; without it, each screen's megabytes go back to the kernel and are faulted in again,
    which is a fifth of a conversion's processor time. Another C library has no such call, and no harm is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


def leave_pandas_out() -> None:
    """For processes that do nothing but convert: no module of theirs will find pandas any more.

    pyarrow imports it, where it is installed, to ask whether a value is one of its own. Nothing here is, and the import
    takes longer than starting a worker does otherwise.
    """
    sys.meta_path.insert(0, _NoPandas)


class _NoPandas:
    """Asked before all other finders. None in `sys.modules` would not do: to compiled code that is a module."""

    @staticmethod
    def find_spec(name: str, path=None, target=None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of processes that convert", name=name)
