"""Models that read screens and write actions, and how they are adapted."""

import logging

from vlm_agent.models.torchvision_on_cpu import declare_operators

declare_operators()

# peft imports bitsandbytes, which on some CPUs warns that an optional kernel, nothing we use, is not installed.
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")
)
