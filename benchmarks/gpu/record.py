"""The metadata of a result: hardware, versions, date, commit and command."""

import argparse
import datetime
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch


def record(options: argparse.Namespace, figures: dict | None) -> dict:
    return {
        "benchmark": options.benchmark,
        "command": command(sys.argv[1:]),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": options.commit or commit(),
        "hardware": hardware(options.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "transformers": version("transformers"),
        "peft": version("peft"),
        "figures": figures,
    }


def command(arguments: list[str]) -> str:
    """`arguments` of the command, without --output and --commit, which change no figure."""
    left = iter(arguments)
    kept = [one for one in left if not (one in ("--output", "--commit") and next(left))]
    return " ".join(["python -m benchmarks.gpu", *kept])


def hardware(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else platform.machine()


def commit() -> str:
    """The commit of the checkout, ending in -dirty if tracked files differ from it. Records of studies do not count:
    each command of a study appends to them."""
    try:
        described = _git("describe", "--always", "--abbrev=12")
        changed = _git("status", "--porcelain", "-uno", "--", ":/", ":(top,exclude,glob)studies/**/*.jsonl")
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("this is no git checkout: name the commit of the code, --commit COMMIT") from None
    return f"{described}-dirty" if changed else described


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
