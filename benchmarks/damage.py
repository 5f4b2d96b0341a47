"""Flips single bits of each kind of file and counts what a command reads: the same, an error, or something else.

python -m benchmarks.damage --flips 250
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.robustness.damaged_files import AS_BEFORE, FLIPPED, REFUSED, SILENT, TRACEBACK, outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=250, help="bits of each kind (default 250)")
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--kinds", nargs="+", choices=FLIPPED, default=list(FLIPPED), help="default: all")
    options = parser.parse_args()
    columns = (AS_BEFORE, REFUSED, SILENT, TRACEBACK)
    print(f"{'kind':26}", *(f"{column:>23}" for column in columns))
    for name in options.kinds:
        kind = FLIPPED[name]
        with tempfile.TemporaryDirectory() as folder:
            path = kind.write(Path(folder))
            content, expected = path.read_bytes(), kind.read(path)
            rng, counts = random.Random(options.seed), Counter[str]()
            for _ in range(options.flips):
                damaged = bytearray(content)
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                path.write_bytes(damaged)
                counts[outcome(kind, path, expected)[0]] += 1
        print(f"{name:26}", *(f"{counts[column]:>23,}" for column in columns), flush=True)


if __name__ == "__main__":
    main()
