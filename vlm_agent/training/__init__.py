"""The run: recipe, data, optimiser, trainer."""

import vlm_agent.models  # noqa: F401 (makes torchvision importable before transformers' Trainer looks for it)
