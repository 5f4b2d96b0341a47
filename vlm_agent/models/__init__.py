"""Models that read screens and write actions: families, how a recipe builds them, and how they are adapted."""

import logging

# peft imports bitsandbytes, which on some CPUs warns that an optional kernel, unused here, is not installed.
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")
)
