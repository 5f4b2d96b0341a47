"""Slurm: its clients, and an answer of its controller."""

import shutil

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check, one_line, output_of

_CLIENTS = ("sbatch", "srun", "squeue", "sinfo")


def _slurm() -> str:
    missing = [program for program in _CLIENTS if shutil.which(program) is None]
    if missing:
        raise AbsentError(f"not on the path: {', '.join(missing)}")
    printed = output_of(["sinfo", "--noheader", "--format=%R|%a|%D"])
    rows = [line.split("|") for line in printed.splitlines() if line.strip()]
    if not rows or any(len(row) != 3 or not row[2].strip().isdigit() for row in rows):
        raise BrokenError(f"sinfo does not list partitions; it prints {one_line(printed)!r}")
    up = {name.strip(): int(nodes) for name, state, nodes in rows if state.strip() == "up"}
    if not up:
        raise BrokenError(f"no partition is up: {', '.join(sorted({row[0].strip() for row in rows}))}")
    return ", ".join(f"{name} ({nodes} nodes)" for name, nodes in up.items())


SLURM = Check(
    _slurm,
    "`sinfo`: the controller lists its partitions",
    ("slurm/pipeline.sh", "slurm/*.sbatch"),
    "run on a login node of the cluster; `sinfo` must list partitions there",
)
