"""`vlm-agent convert`: convert the files of a source into shards."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import FAILED, OK, QUARANTINED, Commands, accept_only, add_command, array_task, count, refuse
from vlm_agent.files.console import make_console

if TYPE_CHECKING:
    from vlm_agent.cli.check import Earlier
    from vlm_agent.datasets.convert import ConversionSummary

_DESCRIPTION = """\
Writes Parquet shards, a manifest, and quarantine.jsonl with every unusable record. Exit status 3 means that there are
unusable records; all others are converted. Exit status 1 is an error, or that split files and mixture keep no episode.

Run the same command again to resume; the result is the same to the byte. To convert new files, and files that were
downloaded again, add --update. In a job array, each task converts a part of the files, and one command at the end
compares the episodes of all shards with what was written and completes the result:

  vlm-agent convert --input AITW --output SHARDS --shard-index $SLURM_ARRAY_TASK_ID --shard-count 64
  vlm-agent convert --finish --output SHARDS"""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "convert", run, "convert a source's files into shards", _DESCRIPTION, check=_check, verify=_verify
    )
    parser.add_argument(
        "--source", default="aitw", metavar="NAME", help="kind of data set (default aitw); a wrong NAME lists all kinds"
    )
    parser.add_argument("--input", type=Path, nargs="+", metavar="PATH", help="files, or folders to search for them")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="a new folder, or the folder of the same conversion to resume",
    )
    parser.add_argument(
        "--splits",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="JSON: label → episode ids (default: the splits of the source, otherwise all train)",
    )
    parser.add_argument("--split", metavar="NAME", help="a split file that comes with the data; a wrong NAME lists all")
    parser.add_argument(
        "--mixture",
        type=_share,
        nargs="+",
        default=(),
        metavar="SUBSET=SHARE",
        help="fraction of a subset's training episodes to keep, chosen by their ids: google_apps=0.1",
    )
    parser.add_argument(
        "--groups",
        type=Path,
        metavar="FILE",
        help="JSON, name → episode ids: groups for evaluations, kept with the shards as DIR/groups.json",
    )
    parser.add_argument(
        "--image-format",
        default="png",
        choices=("png", "webp", "jpeg"),
        help="image format; png and webp are lossless, png is by far the fastest, webp half the size (default png)",
    )
    parser.add_argument("--quality", type=count, default=90, metavar="Q", help="jpeg quality, 1 to 100 (default 90)")
    parser.add_argument(
        "--max-pixels", type=count, metavar="N", help="downscale larger screens, as Qwen-VL's image processor does"
    )
    parser.add_argument(
        "--multiple",
        type=count,
        default=28,
        metavar="N",
        help="side lengths of downscaled screens are multiples of N: 28 for Qwen2-VL and 2.5, 32 for Qwen3-VL (default "
        "28)",
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one per core)")
    parser.add_argument(
        "--max-bad-fraction",
        type=_fraction,
        metavar="F",
        help="fail if a larger fraction of the steps is unusable, or of the bytes in files that end in damage",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="convert inputs that are new, or were replaced, into the folder of an earlier conversion",
    )
    parser.add_argument("--shard-index", type=int, metavar="I", help="convert only part I (from 0) of the files")
    parser.add_argument("--shard-count", type=count, metavar="N", help="number of parts")
    parser.add_argument(
        "--finish",
        action="store_true",
        help="check the results of all parts, and write the manifest; with --output, --workers, --max-bad-fraction",
    )


def run(options: argparse.Namespace) -> int:
    from vlm_agent.datasets.convert import convert, finish
    from vlm_agent.datasets.shards.images import ScreenFormat
    from vlm_agent.evaluation.benchmark import read_groups

    if options.finish:
        summary = finish(options.output, make_console(), options.workers, options.max_bad_fraction)
        return _status(summary)
    groups = None if options.groups is None else read_groups(options.groups)
    summary = convert(
        options.source,
        options.input,
        options.output,
        _splits(options),
        make_console(),
        mixture=dict(options.mixture),
        screens=ScreenFormat(options.image_format, options.quality, options.max_pixels, options.multiple),
        workers=options.workers,
        max_bad_fraction=options.max_bad_fraction,
        task=array_task(options),
        update=options.update,
        groups=groups,
    )
    return _status(summary)


def _status(summary: "ConversionSummary") -> int:
    if summary.is_empty:
        return FAILED
    return QUARANTINED if summary.quarantined else OK


def _check(options: argparse.Namespace) -> None:
    if options.finish:
        allowed = ("finish", "output", "workers", "max_bad_fraction")
        accept_only(options, allowed, "--finish reads inputs and options from --output")
        return
    array_task(options)
    if options.input is None:
        options.parser.error("--input is missing; name files to convert, or folders that contain them")
    subsets = [subset for subset, _ in options.mixture]
    if len({*subsets}) < len(subsets):
        options.parser.error(f"--mixture names a subset twice: {' '.join(subsets)}")
    if options.image_format != "jpeg":
        refuse(options, ["quality"], f"is for --image-format jpeg; {options.image_format} is lossless")
    if options.max_pixels is None:
        refuse(options, ["multiple"], "is for downscaled screens: add --max-pixels N")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    from vlm_agent.datasets.convert import check_conversion
    from vlm_agent.datasets.convert.folder import Options
    from vlm_agent.datasets.shards.images import ScreenFormat
    from vlm_agent.evaluation.benchmark import read_groups

    if options.finish or any(map(earlier.writes, options.input)):
        return
    if options.groups is not None:
        read_groups(options.groups)
    screens = ScreenFormat(options.image_format, options.quality, options.max_pixels, options.multiple)
    settings = Options(_splits(options), dict(options.mixture), screens)
    inputs = check_conversion(options.source, options.input, options.output, settings, options.update)
    earlier.subsets[options.output.absolute()] = {input_.subset for input_ in inputs}


def _splits(options: argparse.Namespace) -> tuple[Path, ...]:
    from vlm_agent.datasets.sources.registry import find_source, split_file

    if options.split is None:
        return tuple(options.splits)
    return (*options.splits, split_file(find_source(options.source), options.input, options.split))


def _share(text: str) -> tuple[str, float]:
    subset, _, share = text.partition("=")
    return subset, _fraction(share)


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return value
