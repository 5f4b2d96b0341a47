"""Benchmarks at the shapes of 7B and 8B models; see gpu.py."""

import vlm_agent  # noqa: F401 (makes torchvision importable)
