"""Records the order in which a program makes files durable and renames them."""

import os
from pathlib import Path

import pytest


def record_syncs_and_renames(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """A list that grows by ("sync", path) with every `os.fsync` and by ("rename", new path) with every rename."""
    events: list[tuple[str, Path]] = []
    rename = Path.replace

    def sync(descriptor: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))

    def replace(path: Path, target: Path) -> Path:
        events.append(("rename", Path(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    return events
