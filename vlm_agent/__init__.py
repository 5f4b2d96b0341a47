"""Train vision-language models into agents that operate phones from screenshots, and score them."""

import vlm_agent.files.imports  # noqa: F401 (makes torchvision importable beside a PyTorch for CPUs)

__version__ = "0.1.0"
