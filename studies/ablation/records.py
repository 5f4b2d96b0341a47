"""Figures of finished runs in a file of JSON lines, which outlives the folders of the runs.

A line is `{"run": key, ...}`; a later line of the same run adds to it. Lines are appended whole, so several commands
can share a file, and a line that a kill cut is ignored. A figure is of the recipe that its key names and of the commit
that its line names: after a change of the code that a figure depends on, `--records` names another file.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.record import commit, hardware


class Records:
    """`path` None keeps nothing."""

    def __init__(self, path: Path | None):
        self.path = path
        # At the start: the file itself is part of the repository, which the first line changes.
        self.about = {} if path is None else {"commit": commit(), "hardware": hardware("cpu")}

    def find(self, run: str) -> dict:
        """All that is known of a run; empty for one that is not recorded."""
        found: dict = {}
        if self.path is not None and self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                content = _content(line)
                if content.get("run") == run:
                    found |= content
        return found

    def add(self, run: str, content: Mapping) -> None:
        """Appends a line, with date, commit and hardware."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = {"run": run} | self.about | dict(content)
        whole = (json.dumps(line) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(handle, whole) != len(whole):
                raise OSError(f"{self.path}: the disk is full")
        finally:
            os.close(handle)


def committed(path: Path) -> dict[str, dict]:
    """Run → all that is known of it from lines of committed code: those of a changed checkout are left out. Empty
    without the file."""
    found: dict[str, dict] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        content = _content(line)
        if "run" in content and not content["commit"].endswith("-dirty"):
            found[content["run"]] = found.get(content["run"], {}) | content
    return found


def pruned(scores: Mapping, paths: Sequence[Sequence[str]]) -> dict:
    """The figures of `scores` at `paths` alone; a path that leads to a mapping keeps all of it."""
    found: dict = {}
    for path in paths:
        here: object = scores
        for key in path:
            here = here.get(key) if isinstance(here, Mapping) else None
        if here is not None:
            inner = found
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = here
    return found


def _content(line: str) -> dict:
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
