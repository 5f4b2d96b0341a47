"""Random damage to copies of files whose readers must notice it.

A reader ends in an error of one line, or with the result of the whole file.
"""

import random
import shutil
from pathlib import Path

from chaos import records
from chaos.commands import Scene

NAME = "damage"
QUARANTINED = 3


def damage(path: Path, rng: random.Random) -> str:
    """Changes a file in one place and returns how."""
    data = bytearray(path.read_bytes())
    kind, at = rng.choice(("bit", "bytes", "zeros", "cut", "longer")), rng.randrange(len(data))
    size = rng.randint(1, min(4096, len(data) - at))
    if kind == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "bytes":
        data[at : at + size] = rng.randbytes(size)
    elif kind == "zeros":
        data[at : at + size] = bytes(size)
    elif kind == "cut":
        del data[at:]
    else:
        data += rng.randbytes(size)
    path.write_bytes(data)
    return f"{kind} at {at} of {path.name}"


class Damage:
    """`data`, `shards` and `evaluation`: undisturbed folders; only copies of them are damaged."""

    def __init__(self, scene: Scene, data: Path, shards: Path, evaluation: Path) -> None:
        self.scene, self.data, self.shards, self.evaluation = scene, data, shards, evaluation
        self._episodes = records.of_episodes(shards)
        self._scored = self._read("score", evaluation)
        self._inspected = self._read("inspect", shards)

    def rounds_until_the_end(self) -> None:
        rng, number = self.scene.rng(NAME), 0
        kinds = (self._convert, self._score, self._inspect)
        while not self.scene.is_over():
            work = self.scene.folder / "rounds" / f"{NAME}-{number}"
            work.mkdir(parents=True)
            before = len(self.scene.findings.violations)
            rng.choice(kinds)(work, rng)
            self.scene.findings.count(NAME, "rounds")
            if len(self.scene.findings.violations) == before:
                shutil.rmtree(work)
            number += 1

    def _convert(self, work: Path, rng: random.Random) -> None:
        """Records that are unusable are quarantined, counted, and lost alone; the other episodes are unchanged."""
        copy, output = work / "data", work / "shards"
        how = self._damaged_copy(self.data, copy, rng, "*/*-of-*")
        status, text = self.scene.run(
            NAME, ["convert", "--input", str(copy), "--output", str(output), "--workers", "1"]
        )
        if status not in (0, QUARANTINED):
            self._expect_error(status, text, how)
            return
        found = records.of_episodes(output)
        changed = [one for one, digest in found.items() if self._episodes.get(one) != digest]
        missing = self._episodes.keys() - found.keys()
        if changed or (missing and status == 0):
            self._violation(how, f"status {status}, changed episodes {changed}, missing {sorted(missing)}")
        self.scene.findings.count(NAME, "quarantined" if status else "harmless")

    def _score(self, work: Path, rng: random.Random) -> None:
        how = self._damaged_copy(self.evaluation, work / "evaluation", rng, "predictions.parquet")
        self._expect("score", work / "evaluation", how, self._scored)

    def _inspect(self, work: Path, rng: random.Random) -> None:
        how = self._damaged_copy(self.shards, work / "shards", rng, "*/*.parquet")
        self._expect("inspect", work / "shards", how, self._inspected)

    def _damaged_copy(self, source: Path, copy: Path, rng: random.Random, pattern: str) -> str:
        shutil.copytree(source, copy)
        return damage(rng.choice(sorted(copy.glob(pattern))), rng)

    def _read(self, command: str, folder: Path) -> tuple[int, str]:
        """Status and output of a command that reads a folder, without the folder's name."""
        name = str(folder / "predictions.parquet" if command == "score" else folder)
        picture = ["--output", str(folder.parent / f"{NAME}.png")] if command == "inspect" else []
        status, text = self.scene.run(NAME, [command, name, *picture])
        return status, "".join(text.replace(name, "X").split())

    def _expect(self, command: str, folder: Path, how: str, whole: tuple[int, str]) -> None:
        found = self._read(command, folder)
        if found == whole:
            self.scene.findings.count(NAME, "harmless")
        else:
            self._expect_error(*found, f"{command}, {how}")

    def _expect_error(self, status: int, text: str, how: str) -> None:
        if status == 1 and "vlm-agent" in text and ":" in text:
            self.scene.findings.count(NAME, "errors")
        else:
            self._violation(how, f"status {status}: {text[-300:]}")

    def _violation(self, how: str, what: str) -> None:
        self.scene.findings.violation(NAME, f"{how}: {what}")
