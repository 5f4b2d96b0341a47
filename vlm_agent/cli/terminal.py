"""What the commands share when they run: the console, and libraries kept quiet on it."""

import logging

_SAID_WITHOUT_GPU = {
    "bitsandbytes.backends.cpu.ops": "Failed to load CPU gemm_4bit_forward",
    "DeepSpeed": "Setting accelerator to CPU",
}


def make_console():
    from rich.console import Console

    return Console()


def quiet_libraries() -> None:
    """Drops what libraries say on every start where there is no GPU, which reads like a fault and is none."""
    for library, words in _SAID_WITHOUT_GPU.items():
        logging.getLogger(library).addFilter(lambda record, words=words: words not in record.getMessage())
