"""Speed of the conversion of AITW to shards, against TensorFlow, protobuf, and decompression alone.

    python -m benchmarks.conversion --with-tensorflow [--quick] [--memory]

Writes records of the real screens in `../shared/data`, in their own sizes and at 720×1440 pixels. The methods ("roads")
convert them alternately, each run in a new process on one core, for several rounds; the best round of each counts:

    a  tensorflow  TensorFlow's reader and Pillow's PNG files: the official method
    b  protobuf    the standard library's gzip, Google's protobuf and Pillow's PNG files
    c  png, webp   `vlm-agent convert`, lossless
    d  jpeg        `vlm-agent convert` with JPEG at quality 90
    e  inflate     decompression with ISA-L alone: the upper limit

Times end when all bytes are passed to the operating system. They exclude the start of TensorFlow in (a) and include
the start of the workers in (c) and (d). (c) on two cores with two workers shows how the conversion scales, (e) in two
processes how the machine scales. Slow methods convert fewer files of the same screens. `--quick` is too short to judge
targets, because start-up dominates. If the ratio by processor time differs from the ratio by wall time, other processes
were running. Linux only (core affinity).

`--memory` converts one file of 2 GB (decompressed) and measures the memory of the processes. TensorFlow needs its own
environment: `--tensorflow-python` names its Python, `--with-tensorflow` installs one in build/; without either, (a) is
skipped. The last line of output is JSON, with the seconds of each method's best round.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.conversion.figures import figures_of, show
from benchmarks.conversion.memory import watch
from benchmarks.conversion.records import RecordSet, write_large_file, write_sets
from benchmarks.conversion.rounds import ENVIRONMENT, ROADS, Bench

ROOT = Path(__file__).resolve().parents[2]
LARGE_BYTES = 2_000_000_000

SETS = (RecordSet("own sizes", None, files=32, screens=80), RecordSet("720x1440", (720, 1440), files=16, screens=160))
QUICK_SETS = (RecordSet("own sizes", None, files=4, screens=10), RecordSet("720x1440", (720, 1440), 4, 10))


def main() -> None:
    options = parse()
    if not (options.shared / "data" / "screens").is_dir():
        raise SystemExit(f"the real screens are not at {options.shared}/data; name the folder shared with --shared")
    options.folder.mkdir(parents=True, exist_ok=True)
    python = tensorflow_python(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder), python, sorted(os.sched_getaffinity(0))[:2], options.roads)
        figures = measure(bench, options)
        if options.memory:
            figures["memory"] = measure_memory(bench.folder, options.shared)
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round over fewer records, under a minute")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds per method (default 3)")
    names = [road.name for road in ROADS]
    parser.add_argument("--roads", nargs="+", choices=names, default=names, metavar="NAME", help="only these")
    parser.add_argument("--sets", nargs="+", choices=[each.name for each in SETS], metavar="NAME", help="only these")
    parser.add_argument("--memory", action="store_true", help="also measure the memory for a file of 2 GB")
    parser.add_argument("--with-tensorflow", action="store_true", help="install TensorFlow into build/tensorflow-venv")
    parser.add_argument("--tensorflow-python", type=Path, metavar="PATH", help="the Python that has TensorFlow")
    parser.add_argument(
        "--shared", type=Path, default=ROOT.parent / "shared", metavar="DIR", help="folder of the real data"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="folder for temporary files")
    return parser.parse_args()


def measure(bench: Bench, options: argparse.Namespace) -> dict:
    console, sets = Console(), QUICK_SETS if options.quick else SETS
    if options.sets is not None:
        sets = tuple(each for each in sets if each.name in options.sets)
    left_out = {road.name: why for road in ROADS if (why := bench.left_out(road)) is not None}
    figures = {"quick": options.quick, "left_out": left_out, "sets": {}}
    with console.status("writing the records"):
        sizes = write_sets(sets, options.shared, bench.folder)
    for records in sets:
        with console.status(f"screens: {records.name}"):
            runs = bench.run_rounds(records, 1 if options.quick else options.rounds)
        found = {"inflated_bytes_a_screen": round(sizes[records.name])} | figures_of(runs)
        figures["sets"][records.name] = found
        show(console, records.name, found, judged=not options.quick)
    for name, why in left_out.items():
        console.print(f"LEFT OUT: {name}: {why}", style="bold red", soft_wrap=True)
    return figures


def measure_memory(folder: Path, shared: Path) -> dict:
    """Peak memory in bytes: of all processes together, and of the largest process."""
    file = folder / "general-00000-of-00001"
    screens = write_large_file(file, shared, LARGE_BYTES)
    arguments = ["convert", "--workers", "1", "--input", file, "--output", folder / "large"]
    peak = watch([sys.executable, "-m", "vlm_agent.cli", *arguments], ENVIRONMENT)
    print(f"Memory, {screens} screens of one file, {LARGE_BYTES / 1e9:.0f} GB inflated, one worker: ", end="")
    print(f"{peak.together / 1e6:.0f} MB in all processes, {peak.largest / 1e6:.0f} MB in the largest")
    return {"screens": screens, "peak_together": peak.together, "peak_largest": peak.largest}


def tensorflow_python(options: argparse.Namespace) -> Path | None:
    if options.tensorflow_python is not None or not options.with_tensorflow:
        return options.tensorflow_python
    environment = ROOT / "build" / "tensorflow-venv"
    python, complete = environment / "bin" / "python", environment / "complete"
    if not complete.exists():
        packages = ["tensorflow-cpu==2.21.0", f"pillow=={version('pillow')}", f"numpy=={version('numpy')}"]
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.touch()
    return python


if __name__ == "__main__":
    main()
