"""The file that makes a checkpoint whole: `whole.json`, written last, tells what belongs to it.

    {"step": 400, "packs": 3200,          steps done, and packs of the stream read by all ranks together
     "identity": {…},                     what a run must share to go on from here (`checkpoints.identity_of`)
     "validation": {…} or null,           figures of a validation after this very step
     "files": {"model.safetensors": {"bytes": …, "sha256": "…"}, …},
     "checksum": "…"}                     sha256 of everything above

Trainer writes its files in place, one after the other. Whatever a kill, a full disk or a power cut leaves has no such
file, or one that does not fit.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlm_agent.datasets import written_whole

RECORD = "whole.json"
_THREADS = 8


class DamagedError(Exception):
    """Why a checkpoint is not whole: which file, and what is wrong."""


def seal(checkpoint: Path, step: int, packs: int, identity: Mapping, validation: Mapping | None) -> None:
    """Makes every file of the checkpoint durable, then writes its record."""
    files = _files(checkpoint)
    for folder in {checkpoint, *(path.parent for path in files)}:
        _sync(folder)
    record = {
        "step": step,
        "packs": packs,
        "identity": dict(identity),
        "validation": None if validation is None else dict(validation),
        "files": {
            path.relative_to(checkpoint).as_posix(): {"bytes": path.stat().st_size, "sha256": digest}
            for path, digest in zip(files, _digests(files, durable=True), strict=True)
        },
    }
    with written_whole(checkpoint / RECORD) as temporary:
        temporary.write_text(json.dumps(record | {"checksum": _checksum(record)}, indent=1), encoding="utf-8")


def read_record(checkpoint: Path) -> dict:
    """The record; DamagedError where there is none or not all of it. The files are not looked at."""
    path = checkpoint / RECORD
    try:
        record = json.loads(path.read_bytes())
        checksum = record.pop("checksum")
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing: it was not written to its end") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError(f"{path.name} is not what was written: {error}") from None
    if checksum != _checksum(record):
        raise DamagedError(f"{path.name} is not what was written: its checksum differs")
    return record


def check(checkpoint: Path) -> dict:
    """The record of a checkpoint of which every byte is as it was written; DamagedError otherwise.

    Sizes first: what a kill or a full disk left is told without reading gigabytes.
    """
    record = read_record(checkpoint)
    if checkpoint.name != f"checkpoint-{record['step']}":
        raise DamagedError(f"{RECORD} is of checkpoint-{record['step']}")
    files = {checkpoint / name: wanted for name, wanted in record["files"].items()}
    for path, wanted in files.items():
        name = path.relative_to(checkpoint)
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if path.stat().st_size != wanted["bytes"]:
            raise DamagedError(f"{name} has {path.stat().st_size} bytes, written were {wanted['bytes']}")
    for (path, wanted), digest in zip(files.items(), _digests(files, durable=False), strict=True):
        if digest != wanted["sha256"]:
            raise DamagedError(f"{path.relative_to(checkpoint)} has other bytes than were written")
    return record


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / RECORD)


def _digests(files, durable: bool) -> list[str]:
    """sha256 of each file; several at once, because a checkpoint of a large model has many and hashing frees Python."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: _digest(path, durable), files))


def _digest(path: Path, durable: bool) -> str:
    with path.open("rb") as file:
        if durable:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
