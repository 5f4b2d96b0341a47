"""`vlm-agent doctor`: which of GPU, DeepSpeed, adb, Slurm, Chromium, OCR … work on this machine."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import FAILED, OK, Commands, add_command
from vlm_agent.files.console import make_console, new_table, print_plain, say, stopped_by_signals

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.cli.doctor.examine import Finding

_STYLES = {"works": "green", "absent": "", "broken": "red"}

_DESCRIPTION = """\
Each check performs a real action, such as a matrix product on the GPU, in a process of its own that is killed after
60 s. What is missing or fails is listed with a command to run, and with the commands that need it.

  vlm-agent doctor
  vlm-agent doctor --only adb chromium

Exit status 1 if the check `training` fails, or one that --only names; otherwise 0, because no machine needs
everything."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "doctor", run, "check what works on this machine", _DESCRIPTION)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these checks, which must then succeed")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from rich.text import Text

    from vlm_agent.cli.doctor.checks import CHECKS
    from vlm_agent.cli.doctor.examine import examine

    names = list(CHECKS) if options.only is None else list(dict.fromkeys(options.only))
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        options.parser.error(f"--only: {', '.join(unknown)} is not a check; choose from {', '.join(CHECKS)}")
    findings = []
    for name in names:
        # On the terminal while a check runs, and not in a log; on stderr, because stdout may be JSON.
        with stopped_by_signals(), make_console(stderr=True).status(Text(f"{name}: {CHECKS[name].action}")):
            findings.append(examine(name))
    if options.json:
        keys = ("action", "needed_by", "is_required")
        records = [asdict(one) | {key: getattr(CHECKS[one.name], key) for key in keys} for one in findings]
        say(json.dumps(records, indent=2))
    else:
        _print(make_console(), findings)
    needed = [finding for finding in findings if options.only is not None or CHECKS[finding.name].is_required]
    return OK if all(finding.works for finding in needed) else FAILED


def _print(console: "Console", findings: Sequence["Finding"]) -> None:
    from rich.text import Text

    from vlm_agent.cli.doctor.checks import CHECKS

    table = new_table("", ("check", "", "seconds", "found"), left=("", "found"))
    for one in findings:
        table.add_row(one.name, Text(one.status, _STYLES[one.status]), f"{one.seconds:.1f}", Text(one.found))
    console.print(table)
    for one in findings:
        if not one.works:
            needed = "; ".join(CHECKS[one.name].needed_by)
            line = f"{one.name}: {one.problem}. To do: {one.remedy}. Needed by: {needed}"
            print_plain(console, line)
