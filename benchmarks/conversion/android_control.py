"""Conversion of AndroidControl: 60 episodes of 402 screens, 194 MB of gzip TFRecords, by one worker and by two.

    python -m benchmarks.conversion.android_control [--rounds N] [--times N]

The episodes repeat those of `tests/data/agents_2025` with noise on the screens, so that a PNG has the size of a real
one, and with eight times the nodes. Each run is a new process of `vlm-agent convert`; imports are in the figures, those
of each worker too, so the gain of a second worker needs more episodes (`--times 4`). The best round of each counts. The
last line of output is JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.conversion.memory import watch
from benchmarks.conversion.rounds import ENVIRONMENT
from vlm_agent.datasets.formats.tf_example import encode_example, parse_example
from vlm_agent.datasets.formats.tfrecord import read_records, write_records
from vlm_agent.datasets.sources.androidcontrol import _KINDS
from vlm_agent.files.png import encode_png

SAMPLE = Path(__file__).resolve().parents[2] / "tests/data/agents_2025/android_control"
EPISODES = (*[0] * 21, *[1] * 24, *[2] * 15)
"""The episodes of the sample, with 9, 7 and 3 screens, in the numbers that make 402 screens."""

FILES, NOISE_BYTES, FORESTS = 4, 482_000, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="N times the episodes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, object] = {"bytes": write(folder / "in", options.times)}
        for workers in (1, 2):
            runs = [run(folder, workers, folder / f"out-{workers}-{number}") for number in range(options.rounds)]
            found[f"{workers} workers"] = {key: round(min(one[key] for one in runs), 2) for key in runs[0]}
    print(json.dumps(found))


def write(folder: Path, times: int = 1) -> int:
    """Returns the bytes of the files."""
    folder.mkdir()
    payloads = [record.payload for path in sorted(SAMPLE.glob("android_control-*")) for record in read_records(path)]
    mixed = np.random.default_rng(0).permutation(EPISODES * times).tolist()
    episodes = ((number, payloads[each]) for number, each in enumerate(mixed))
    share = len(mixed) // FILES
    for index in range(FILES):
        path = folder / f"android_control-{index:05}-of-{FILES:05}"
        write_records(path, (grown(*each) for each in islice(episodes, share)))
    return sum(path.stat().st_size for path in folder.iterdir())


def grown(number: int, payload: bytes) -> bytes:
    """The episode with another id, noise on its screens, and `FORESTS` times its windows and nodes."""
    features = {name: list(values) for name, (_, values) in parse_example(payload, _KINDS).items()}
    sizes = zip(features["screenshot_heights"], features["screenshot_widths"], strict=True)
    features["screenshots"] = [noisy(1000 * number + at, size) for at, size in enumerate(sizes)]
    features["accessibility_trees"] = [bytes(tree) * FORESTS for tree in features["accessibility_trees"]]
    return encode_example(features | {"episode_id": [number]})


def noisy(seed: int, size: tuple[int, int]) -> bytes:
    screen = np.zeros((*size, 3), np.uint8)
    screen.reshape(-1)[:NOISE_BYTES] = np.random.default_rng(seed).integers(0, 256, NOISE_BYTES, np.uint8)
    return encode_png(screen)


def run(folder: Path, workers: int, output: Path) -> dict[str, float]:
    """Seconds by the wall, processor seconds, and the peak of memory in MB of all processes and of the largest."""
    arguments = ["--source", "androidcontrol", "--input", folder / "in", "--output", output, "--workers", workers]
    wall, before = time.perf_counter(), os.times()
    peak = watch([sys.executable, "-m", "vlm_agent.cli", "convert", *map(str, arguments)], ENVIRONMENT)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": cpu,
        "mb_together": peak.together / 1e6,
        "mb_largest": peak.largest / 1e6,
    }


if __name__ == "__main__":
    main()
