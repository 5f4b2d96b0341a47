"""Conversions for tests: in this process with the books checked, or as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path

from helpers.data.made_episodes import made_episode
from rich.console import Console

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.sources.aitw import write_episodes

COUNTS = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written")
STEPS = len(made_episode())
CLI = (sys.executable, "-m", "vlm_agent.cli", "convert")


def converted(*inputs, output, splits=(), source="aitw", workers=1, **options):
    """Converts here and checks the books; gives (summary, manifest, lines of the quarantine, what was printed)."""
    console = Console(width=100)
    with console.capture() as capture:
        summary = convert(source, inputs, output, splits, console, workers=workers, **options)
    manifest, lines = books_of(output)
    assert {name: manifest[name] for name in COUNTS} == {name: summary.total(name) for name in COUNTS}
    assert manifest["steps_quarantined"] == summary.quarantined
    return summary, manifest, lines, capture.get()


def books_of(output: Path) -> tuple[dict, list[dict]]:
    """The manifest and the quarantine, after a look at whether they add up, for each file and in all."""
    manifest = json.loads((output / "manifest.json").read_text())
    lines = [json.loads(line) for line in (output / "quarantine.jsonl").read_text().splitlines()]
    assert manifest["steps_quarantined"] == sum(line["steps"] for line in lines)
    for counts in (manifest, *manifest["files"]):
        kinds = ("steps_written", "steps_quarantined", "steps_left_out")
        assert counts["steps_read"] == sum(counts[name] for name in kinds)
    for name in COUNTS:
        assert manifest[name] == sum(file[name] for file in manifest["files"])
    return manifest, lines


def command(*arguments, **options) -> subprocess.CompletedProcess:
    """`vlm-agent convert` in a process of its own."""
    return subprocess.run([*CLI, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, hidden files too: path → content, None for a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def write_files(folder: Path, ids: str, subset: str = "general", **episode) -> Path:
    """Episodes named by single letters; each word becomes a file."""
    words = ids.split()
    for number, word in enumerate(words):
        path = folder / f"{subset}-{number:05d}-of-{len(words):05d}"
        write_episodes(path, [made_episode(id_, subset, **episode) for id_ in word])
    return folder
