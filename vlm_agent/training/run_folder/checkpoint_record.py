"""The record of a complete checkpoint: `whole.json`, written last, lists its files.

    {"step": 400, "packs": 3200,          steps done, and packs of the stream read by all ranks in total
     "identity": {…},                     must be equal to resume from here (`checkpoints.identity_of`)
     "validation": {…} or null,           metrics of a validation after this step
     "files": {"model.safetensors": {"bytes": …, "sha256": "…"}, …},
     "checksum": "…"}                     sha256 of everything above

Trainer writes its files in place, one after the other. After a kill, a full disk or a power cut the record is missing
or does not match the files.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlm_agent.files import atomic_write, sync_folder

RECORD = "whole.json"
_THREADS = 8


class DamagedError(Exception):
    """A checkpoint is incomplete or damaged; the message names the file."""


def seal(checkpoint: Path, step: int, packs: int, identity: Mapping, validation: Mapping | None) -> None:
    """Makes every file of the checkpoint durable, then writes its record."""
    files = _files(checkpoint)
    for folder in {checkpoint, *(path.parent for path in files)}:
        sync_folder(folder)
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
    with atomic_write(checkpoint / RECORD) as temporary:
        temporary.write_text(json.dumps(record | {"checksum": _checksum(record)}, indent=1), encoding="utf-8")


def read_record(checkpoint: Path) -> dict:
    """The record; DamagedError where it is missing or damaged. The files are not read."""
    path = checkpoint / RECORD
    try:
        record = json.loads(path.read_bytes())
        checksum = record.pop("checksum")
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing: the checkpoint is incomplete") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError(f"{path.name} is damaged: {error}") from None
    if checksum != _checksum(record):
        raise DamagedError(f"{path.name} is damaged: its checksum differs")
    return record


def check(checkpoint: Path) -> dict:
    """The record of a checkpoint whose files have their recorded SHA-256; DamagedError otherwise.

    Compares sizes first, so that an incomplete checkpoint is detected without reading gigabytes.
    """
    record = read_record(checkpoint)
    if checkpoint.name != f"checkpoint-{record['step']}":
        raise DamagedError(f"{RECORD} belongs to checkpoint-{record['step']}")
    files = {checkpoint / name: recorded for name, recorded in record["files"].items()}
    for path, recorded in files.items():
        name = path.relative_to(checkpoint)
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if path.stat().st_size != recorded["bytes"]:
            raise DamagedError(f"{name} has {path.stat().st_size} bytes instead of {recorded['bytes']}")
    for (path, recorded), digest in zip(files.items(), _digests(files, durable=False), strict=True):
        if digest != recorded["sha256"]:
            raise DamagedError(f"{path.relative_to(checkpoint)} is damaged: its SHA-256 differs")
    return record


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / RECORD)


def _digests(files, durable: bool) -> list[str]:
    """SHA-256 of each file, in several threads: large models have many files, and hashing releases the GIL."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: _digest(path, durable), files))


def _digest(path: Path, durable: bool) -> str:
    with path.open("rb") as file:
        if durable:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
