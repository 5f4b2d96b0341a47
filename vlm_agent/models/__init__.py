"""Models that read screens and write actions: families, how a recipe builds them, and how they are adapted."""

import logging

import vlm_agent.files.torch_operators  # noqa: F401 (before torchvision, which transformers, peft and timm import)
from vlm_agent.files.console import hide_loading_bars

hide_loading_bars()

# peft imports bitsandbytes, which on some CPUs warns that an optional kernel, unused here, is not installed.
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")
)
