"""Common parts of the process of each method: arguments, clock, memory, and gradients for the comparison.

Imports nothing of vlm_agent: the peer's environment runs it too.
"""

import argparse
import re
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

LEARNING_RATE, WEIGHT_DECAY, BETAS, MAX_GRAD_NORM = 1e-4, 0.01, (0.9, 0.98), 1.0
"""AdamW's, the same on every road."""


def make_parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", required=True, help="the name of one of the shapes")
    parser.add_argument("--vocabulary", type=int, help="another vocabulary than the shape's")
    parser.add_argument("--data", type=Path, required=True, help="folder of the episodes; tokenizer/ in it")
    parser.add_argument("--steps", type=int, required=True, help="optimiser steps to be timed")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--gradients", type=Path, required=True, help="where the first step's gradients are written")
    return parser


class Clock:
    """Sums the time within its `with` blocks: `seconds` by the wall, `cpu_seconds` of all threads."""

    def __init__(self):
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> "Clock":
        self.seconds -= time.perf_counter()
        self.cpu_seconds -= time.process_time()
        return self

    def __exit__(self, *_) -> None:
        self.seconds += time.perf_counter()
        self.cpu_seconds += time.process_time()


def peak_resident() -> int:
    """The most bytes that this process has held; getrusage would begin with what its parent held."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def save_gradients(model: torch.nn.Module, path: Path) -> None:
    """float32, by the names that peft gives the adapter's weights."""
    trained = ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
    save_file({name: parameter.grad.float().cpu().clone() for name, parameter in trained}, path)
