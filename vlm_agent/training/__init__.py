"""The run: recipe, data, model, loop, run folder."""

import vlm_agent.models  # noqa: F401 (makes torchvision importable before peft looks for it)
