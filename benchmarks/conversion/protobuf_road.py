"""Road (b), what one writes without TensorFlow: the standard library's gzip, Google's protobuf, PNG files by Pillow.

It does not check the records' checksums.
"""

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from helpers.data.example_message import Example
from PIL import Image

from benchmarks.conversion.measure import make_parser, report, stay_on


def main() -> None:
    options = make_parser(__doc__).parse_args()
    stay_on(options.cores)
    options.output.mkdir()
    report(lambda: convert(options.files, options.output))


def convert(files: list[Path], output: Path) -> None:
    for number, payload in enumerate(payload for file in files for payload in _payloads(file)):
        feature = Example.FromString(payload).features.feature
        size = [feature[f"image/{name}"].int64_list.value[0] for name in ("height", "width", "channels")]
        pixels = np.frombuffer(feature["image/encoded"].bytes_list.value[0], np.uint8).reshape(size)
        Image.fromarray(pixels).save(output / f"{number}.png")


def _payloads(file: Path) -> Iterator[bytes]:
    with gzip.open(file, "rb") as stream:
        while header := stream.read(12):
            yield stream.read(struct.unpack("<Q", header[:8])[0])
            stream.read(4)


if __name__ == "__main__":
    main()
