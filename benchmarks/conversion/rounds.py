"""The methods ("roads") of conversion, and rounds in which each runs once, in a new process."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.conversion.records import RecordSet

_ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "tests"))),
}


PASSES = 3
"""The number of times that inflating reads the files, because it is so fast."""


@dataclass(frozen=True)
class Road:
    """A method: the script `module` with `options`. A `slow` one converts one file of a set, the others all."""

    letter: str
    name: str
    about: str
    module: str
    options: tuple[str, ...] = ()
    slow: bool = False
    cores: int = 1
    passes: int = 1


def _ours(letter: str, name: str, about: str, image_format: str, cores: int = 1, slow: bool = False) -> Road:
    options = ("--image-format", image_format, "--workers", f"{cores}")
    return Road(letter, name, about, "vlm_agent_road", options, slow, cores)


def _inflate(name: str, about: str, cores: int = 1) -> Road:
    return Road(
        "e", name, about, "inflate_road", ("--workers", f"{cores}", "--passes", f"{PASSES}"), cores=cores, passes=PASSES
    )


ROADS = (
    Road("a", "tensorflow", "TensorFlow + Pillow PNG", "tensorflow_road", slow=True),
    Road("b", "protobuf", "gzip + protobuf + Pillow PNG", "protobuf_road", slow=True),
    _ours("c", "png", "ours, PNG", "png"),
    _ours("c", "webp", "ours, lossless WebP", "webp", slow=True),
    _ours("d", "jpeg", "ours, JPEG", "jpeg"),
    _inflate("inflate", "inflate alone"),
    _ours("c", "png_2", "ours, PNG, on 2 cores", "png", cores=2),
    _inflate("inflate_2", "inflate alone, on 2 cores", cores=2),
)


@dataclass(frozen=True)
class Bench:
    """Where the records are and the roads write, TensorFlow's Python (None: not at hand), the cores to run on, and the
    names of the roads that are asked for.
    """

    folder: Path
    tensorflow_python: Path | None
    cores: list[int]
    asked: Sequence[str]

    def left_out(self, road: Road) -> str | None:
        """Why the road cannot be taken here, or None."""
        if road.name not in self.asked:
            return "it was not asked for"
        if road.cores > len(self.cores):
            return "it needs two cores, and this process may use one"
        if road.name == "tensorflow" and self.tensorflow_python is None:
            return "no TensorFlow at hand; see --with-tensorflow and --tensorflow-python"
        return None

    def run_rounds(self, records: RecordSet, count: int) -> dict[str, list[dict]]:
        """road → its runs; the roads take turns, so that noise hits all alike."""
        roads = [road for road in ROADS if self.left_out(road) is None]
        runs = {road.name: [] for road in roads}
        for _ in range(count):
            for road in roads:
                runs[road.name].append(self._run(road, records))
        return runs

    def _run(self, road: Road, records: RecordSet) -> dict:
        """`seconds` by the wall, `cpu_seconds`, `screens`, and the `bytes` written."""
        files = records.paths(self.folder)[: 1 if road.slow else None]
        screens, output = len(files) * records.screens, self.folder / "out"
        os.sync()  # else what the road before has written is on its way to the disk meanwhile
        done = subprocess.run(self._command(road, files, output), env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{road.about} ended with status {done.returncode}:\n{done.stderr}")
        size = 0
        if road.module != "inflate_road":
            size = _size_of(output, screens)
            shutil.rmtree(output)
        return json.loads(done.stdout.splitlines()[-1]) | {"screens": screens * road.passes, "bytes": size}

    def _command(self, road: Road, files: list[Path], output: Path) -> list:
        python = self.tensorflow_python if road.name == "tensorflow" else sys.executable
        command = [python, "-m", f"benchmarks.conversion.{road.module}", *road.options]
        return [*command, "--cores", *map(str, self.cores[: road.cores]), "--output", output, "--files", *files]


def _size_of(output: Path, screens: int) -> int:
    """Bytes below the folder. Raises SystemExit where it does not hold all screens."""
    manifest = output / "manifest.json"
    if manifest.exists():
        written = json.loads(manifest.read_text())["steps_written"]
    else:
        written = sum(1 for _ in output.glob("*.png"))
    if written != screens:
        raise SystemExit(f"{written} of {screens} screens were written to {output}")
    return sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
