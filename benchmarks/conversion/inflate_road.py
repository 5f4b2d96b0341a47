"""Road (e): ISA-L inflates, and nothing is done with the bytes. The limit of every other road."""

import multiprocessing
from pathlib import Path

from isal import igzip

from benchmarks.conversion.measure import make_parser, report, stay_on

_CHUNK = 1 << 18  # inflates fastest of 16 KiB … 16 MiB


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--passes", type=int, required=True, help="how often each file is inflated")
    options = parser.parse_args()
    stay_on(options.cores)
    report(lambda: inflate_all(options.files * options.passes, options.workers))


def inflate_all(files: list[Path], workers: int) -> None:
    if workers == 1:
        for file in files:
            inflate(file)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.map(inflate, files, chunksize=1)


def inflate(file: Path) -> None:
    buffer = bytearray(_CHUNK)
    with igzip.open(file, "rb") as stream:
        while stream.readinto(buffer):
            pass


if __name__ == "__main__":
    main()
