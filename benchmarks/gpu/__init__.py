"""Benchmarks at the shapes of 7B and 8B models; see gpu.py."""

import vlm_agent.models  # noqa: F401 (before peft, which imports torchvision)
