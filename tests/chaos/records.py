"""The results of commands as flat records: what must be equal in a disturbed and an undisturbed run."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from vlm_agent.files import read_checked


def of_conversion(folder: Path) -> dict:
    """Every file byte for byte, except the lock."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def of_training(folder: Path) -> dict:
    """The weights, the number of steps, how often each step was recorded, and its loss."""
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if "loss" in line]
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return {
        "weights": hashlib.sha256((folder / "model/model.safetensors").read_bytes()).hexdigest(),
        "steps": run["figures"]["steps"],
        "records of each step": dict(Counter(line["step"] for line in lines)),
        "losses": {line["step"]: line["loss"] for line in lines},
        "last losses": run["figures"]["last_losses"],
    }


def of_evaluation(folder: Path) -> dict:
    """Every answer, how often each step was answered, and every score."""
    table = pq.read_table(folder / "predictions.parquet")
    rows = table.select([name for name in table.column_names if name != "seconds"]).to_pylist()
    scores = read_checked(folder / "metrics.json", "")
    return {
        "steps": len(rows),
        "answers to a step": max(Counter((row["episode_id"], row["step"]) for row in rows).values()),
        **{f"{row['episode_id']}/{row['step']}": json.dumps(row, sort_keys=True, default=str) for row in rows},
        **{f"scores of {run}": json.dumps(_without_seconds(values), sort_keys=True) for run, values in scores.items()},
    }


def of_episodes(folder: Path) -> dict:
    """Episode id → digest of its row, whatever shard it is in."""
    rows = [row for path in sorted(folder.glob("*/*.parquet")) for row in pq.read_table(path).to_pylist()]
    ids = [row["episode_id"] for row in rows]
    assert len(ids) == len(set(ids)), "an episode was written twice"
    return {row["episode_id"]: hashlib.sha256(repr(row).encode()).hexdigest() for row in rows}


def _without_seconds(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if "second" not in key}
    return value
