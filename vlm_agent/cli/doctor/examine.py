"""Runs a check in a process of its own, and ends it, with all that it started, after a time limit."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.cli.doctor.check import BrokenError, one_line
from vlm_agent.cli.doctor.checks import CHECKS

SECONDS = 60.0
"""The time limit of a check."""

WORKS = "works"


@dataclass(frozen=True)
class Finding:
    """`status`: works, absent or broken. `found`: what works, else "". `problem` and `remedy`: "" where it works."""

    name: str
    status: str
    seconds: float
    found: str = ""
    problem: str = ""
    remedy: str = ""

    @property
    def works(self) -> bool:
        return self.status == WORKS


def examine(name: str, limit: float = SECONDS) -> Finding:
    """The result of a check of `CHECKS` within `limit` seconds; a check that takes longer is broken."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vlm-agent-doctor-") as folder:
        result, printed = Path(folder, "result.json"), Path(folder, "printed.txt")
        status = _run(name, result, printed, limit)
        seconds = round(time.monotonic() - started, 1)
        if result.exists():
            return Finding(name, seconds=seconds, **json.loads(result.read_text(encoding="utf-8")))
        if status is None:
            problem = f"no result within {limit:g} s, after which it was killed"
        else:
            last = one_line("\n".join(reversed(printed.read_text(encoding="utf-8", errors="replace").splitlines())))
            problem = f"its process ended with {_in_words(status)}: {last or 'no message'}"
        return Finding(name, BrokenError.status, seconds, problem=problem, remedy=CHECKS[name].remedy)


def _run(name: str, result: Path, printed: Path, limit: float) -> int | None:
    """The exit status of the process; None where it took longer than `limit` seconds."""
    command = [sys.executable, "-m", "vlm_agent.cli.doctor", name, str(result)]
    with printed.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (our own module)
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:  # also after Ctrl-C
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _in_words(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"


def run_check(name: str, result: Path) -> None:
    """In the process of a check: runs it, and writes its result."""
    check = CHECKS[name]
    try:
        outcome = {"status": WORKS, "found": check.run()}
    except BrokenError as error:
        outcome = _failure(error.status, str(error), check.remedy if error.remedy is None else error.remedy)
    except Exception as error:  # noqa: BLE001 (whatever a driver or a library raises is the result)
        outcome = _failure(BrokenError.status, f"{type(error).__name__}: {one_line(str(error))}", check.remedy)
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(outcome), encoding="utf-8")
    partial.replace(result)


def _failure(status: str, problem: str, remedy: str) -> dict[str, str]:
    return {"status": status, "problem": one_line(problem), "remedy": remedy}
