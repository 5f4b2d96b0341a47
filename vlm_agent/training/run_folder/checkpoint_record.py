"""The record of a complete checkpoint: `whole.json`, written last, lists its files.

    {"step": 400, "packs": 3200,          steps done, and packs of the stream read by all ranks in total
     "identity": {…},                     must be equal to resume from here (`checkpoints.identity_of`)
     "validation": {…} or null,           metrics of a validation after this step
     "files": {"model.safetensors": {"bytes": …, "sha256": "…"}, …},
     "checksum": "…"}                     sha256 of everything above

Files are written in place, one after the other. After a kill, a full disk or a power cut the record is missing
or does not match the files.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlm_agent.files import atomic_write, sync
from vlm_agent.models.run_layout import CHECKPOINT_RECORD
from vlm_agent.training.loop import ranks

_THREADS = 8
_WRITER = re.compile(r"(?:rank|rng_state)_(\d+)")
"""In the names of files that each rank writes for itself: rng_state_3.pth, bf16_zero_pp_rank_3_mp_rank_00_….pt."""


class DamagedError(Exception):
    """A checkpoint is incomplete or damaged; the message names the file."""


def seal(checkpoint: Path, step: int, packs: int, identity: Mapping, validation: Mapping | None) -> None:
    """Makes every file of the checkpoint durable, then writes its record.

    A collective: every rank calls it once all have written their files. They divide the reading; rank 0 writes.
    """
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / CHECKPOINT_RECORD)
    sizes = ranks.from_rank_0({path.relative_to(checkpoint).as_posix(): path.stat().st_size for path in files})
    sums = _digests(checkpoint, sizes, durable=True)
    if ranks.number() != 0:
        return
    for folder in {checkpoint, *(path.parent for path in files)}:
        sync(folder)
    record = {
        "step": step,
        "packs": packs,
        "identity": dict(identity),
        "validation": None if validation is None else dict(validation),
        "files": {name: {"bytes": size, "sha256": sums[name]} for name, size in sizes.items()},
    }
    _write(checkpoint, record)


def record_validation(checkpoint: Path, validation: Mapping) -> None:
    """Adds the metrics of a validation to the record of a complete checkpoint. Called by rank 0."""
    _write(checkpoint, read_record(checkpoint) | {"validation": dict(validation)})


def read_record(checkpoint: Path) -> dict:
    """The record; DamagedError where it is missing or damaged. The files are not read."""
    path = checkpoint / CHECKPOINT_RECORD
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

    Compares sizes first, so that an incomplete checkpoint is detected without reading gigabytes. A collective: the
    ranks divide the reading, and all of them return or raise the same. OSError for a file that cannot be read now; an
    I/O error of the disk is damage.
    """
    record, damage = ranks.from_rank_0(_record_of_present_files(checkpoint) if ranks.number() == 0 else ({}, None))
    if damage is not None:
        raise DamagedError(damage)
    files = record["files"]
    try:
        sums = _digests(checkpoint, files, durable=False)
    except OSError as error:
        if error.errno != errno.EIO:  # a file server that does not respond is no reason to give up a checkpoint
            raise
        raise DamagedError(f"{error.filename}: {error.strerror}") from None
    for name, recorded in files.items():
        if sums[name] != recorded["sha256"]:
            raise DamagedError(f"{name} is damaged: its SHA-256 differs")
    return record


def _record_of_present_files(checkpoint: Path) -> tuple[dict, str | None]:
    """The record, and what is wrong with it or the sizes of its files, if anything is."""
    try:
        record = read_record(checkpoint)
    except DamagedError as damage:
        return {}, str(damage)
    if checkpoint.name != f"checkpoint-{record['step']}":
        return {}, f"{CHECKPOINT_RECORD} belongs to checkpoint-{record['step']}"
    for name, recorded in record["files"].items():
        path = checkpoint / name
        if not path.is_file():
            return {}, f"{name} is missing"
        if path.stat().st_size != recorded["bytes"]:
            return {}, f"{name} has {path.stat().st_size} bytes instead of {recorded['bytes']}"
    return record, None


def _digests(checkpoint: Path, names: Iterable[str], durable: bool) -> dict[str, str]:
    """The SHA-256 of each file, in hexadecimal; `names`: relative paths, the same on all ranks.

    Each rank reads the files that it wrote, and rank 0 the others: one rank would take many minutes for the optimiser
    states of a large model. `durable`: the reader also writes the file to the disk, because `fsync` does not reach what
    another machine has in its page cache. A collective: all ranks raise OSError where one cannot read a file.
    """
    mine = [name for name in names if _writer(name) % ranks.count() == ranks.number()]
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing and writing release the GIL
        found = ranks.gathered(list(pool.map(lambda name: (name, _digest(checkpoint / name, durable)), mine)))
    if errors := [digest for _, digest in found if isinstance(digest, OSError)]:
        raise errors[0]
    return {name: str(digest) for name, digest in found}


def _writer(name: str) -> int:
    """The rank that wrote a file: rank 0 unless its name says another."""
    writer = _WRITER.search(name)
    return 0 if writer is None else int(writer[1])


def _digest(path: Path, durable: bool) -> str | OSError:
    """An error is returned, because the other ranks would wait for a rank that raises it."""
    try:
        with path.open("rb") as file:
            if durable:
                os.fsync(file.fileno())
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return OSError(error.errno, f"cannot be read: {error.strerror}", str(path))


def _write(checkpoint: Path, record: dict) -> None:
    with atomic_write(checkpoint / CHECKPOINT_RECORD) as temporary:
        temporary.write_text(json.dumps(record | {"checksum": _checksum(record)}, indent=1), encoding="utf-8")


def _checksum(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
