"""Roads (c) and (d): the real `vlm-agent convert`, all of it, the start of its workers too; only imports go untimed.

A worker imports this module again, so nothing is imported here that the command itself does not need.
"""

import sys

from benchmarks.conversion.measure import make_parser, report, stay_on
from vlm_agent import cli

JPEG_QUALITY = 90


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--image-format", choices=("png", "webp", "jpeg"), required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    stay_on(options.cores)
    import vlm_agent.datasets.convert  # noqa: F401

    arguments = ["convert", "--image-format", options.image_format, "--workers", options.workers]
    if options.image_format == "jpeg":
        arguments += ["--quality", JPEG_QUALITY]
    report(lambda: convert([*arguments, "--output", options.output, "--input", *options.files]))


def convert(arguments: list) -> None:
    sys.argv[1:] = map(str, arguments)
    status = cli.main()
    if status != cli.OK:
        raise SystemExit(f"vlm-agent convert ended with status {status}")


if __name__ == "__main__":
    main()
