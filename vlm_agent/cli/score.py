"""`vlm-agent score`: scores predictions again, without a model."""

import argparse
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command, count, file_name, refuse
from vlm_agent.console import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.evaluation.scoring.judged import JudgedSteps
    from vlm_agent.evaluation.scoring.metrics import Groups


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "score",
        run,
        "score predictions again, without a model",
        "Scores by the official matcher, the strict one and every --dialect, a published variant of the score (listed\n"
        "below). --against also compares two runs over the same steps, with paired intervals.\n"
        "--report writes a page with all numbers, and pictures from the shards; with --against also of steps that\n"
        "became right or wrong.",
        check=_check,
        more_help=_dialects,
    )
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="predictions.parquet of an evaluation")
    parser.add_argument("--dialect", nargs="+", action="extend", default=[], metavar="NAME", help="additional scorers")
    parser.add_argument(
        "--against", type=Path, metavar="OTHER_PREDICTIONS", help="predictions of an earlier run over the same steps"
    )
    parser.add_argument("--groups", type=Path, metavar="FILE", help="JSON, name → episode ids: groups to score as well")
    parser.add_argument("--output", type=file_name(".json"), metavar="FILE", help="also write all numbers to FILE")
    parser.add_argument("--report", type=file_name(".html"), metavar="FILE", help="write a page with pictures")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="for --report: the shards of the evaluation")
    parser.add_argument(
        "--episodes",
        type=count,
        default=40,
        metavar="N",
        help="episodes in the report: half the worst, half at random (default 40)",
    )
    parser.add_argument(
        "--flips",
        type=count,
        default=10,
        metavar="N",
        help="with --against: changed steps in the report, each way, by the official scorer (default 10)",
    )


def _dialects() -> str:
    from vlm_agent.evaluation.scoring.dialects import DIALECTS

    lines = [
        textwrap.fill(
            f"{name:20}{dialect.rule} ({dialect.source})", 110, initial_indent="  ", subsequent_indent=" " * 22
        )
        for name, dialect in DIALECTS.items()
    ]
    return "\n".join(["", "dialects (official and strict are always used):", *lines, ""])


def _check(options: argparse.Namespace) -> None:
    if options.report is None:
        refuse(options, ("shards", "episodes", "flips"), "is for the page: add --report FILE")
    elif options.shards is None:
        options.parser.error("--report needs --shards: the page shows screens from the shards")
    if options.against is None:
        refuse(options, ["flips"], "is the number of steps that changed: add --against OTHER_PREDICTIONS")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.evaluation.benchmark import read_groups
    from vlm_agent.evaluation.report.terminal import print_rules, print_scores
    from vlm_agent.evaluation.scoring.dialects import SCORERS
    from vlm_agent.evaluation.scoring.judged import judge_steps
    from vlm_agent.evaluation.scoring.metrics import score

    console = make_console()
    scorers = list(dict.fromkeys((*SCORERS, *options.dialect)))
    groups = read_groups(options.groups)
    names = _names(options.predictions, options.against)
    steps = judge_steps(options.predictions, scorers)
    scores = score(steps, groups, scorers=scorers)
    print_scores(console, scores, names[0])
    before = None
    if options.against is not None:
        before = judge_steps(options.against, scorers)
        scores["against"] = _compare(console, before, steps, groups, scorers, names, options)
    print_rules(console, scores["scorers"])
    if options.output is not None:
        _write(options.output, scores)
        _say_written(console, options.output)
    if options.report is not None:
        earlier = None if before is None else score(before, groups, scorers=scorers)
        _write_report(scores, steps, earlier, names, options)
        _say_written(console, options.report)
    return OK


def _compare(
    console: "Console",
    before: "JudgedSteps",
    steps: "JudgedSteps",
    groups: "Groups | None",
    scorers: list[str],
    names: tuple[str, str],
    options: argparse.Namespace,
) -> dict:
    from vlm_agent.evaluation.report.terminal import print_comparison
    from vlm_agent.evaluation.scoring.comparison import compare

    paths = str(options.against), str(options.predictions)
    comparison = compare(before, steps, groups, scorers=scorers, names=paths)
    print_comparison(console, comparison, names[1], names[0])
    return {"first": paths[0], "second": paths[1], **comparison}


def _write_report(
    scores: dict,
    steps: "JudgedSteps",
    scores_before: dict | None,
    names: tuple[str, str],
    options: argparse.Namespace,
) -> None:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.evaluation.report import Earlier, write_report

    name, name_before = names
    runs, earlier = {name: scores}, None
    facts = {"predictions": str(options.predictions), "shards": str(options.shards)}
    if scores_before is not None:
        runs[name_before], facts["against"] = scores_before, str(options.against)
        earlier = Earlier(name_before, options.against, scores["against"])
    options.report.parent.mkdir(parents=True, exist_ok=True)
    write_report(
        options.report,
        runs,
        options.predictions,
        ShardDataset(options.shards),
        facts,
        judged=steps,
        earlier=earlier,
        episodes=options.episodes,
        flips=options.flips,
    )


def _names(path: Path, other: Path | None) -> tuple[str, str]:
    """What tables call the runs of both files: as their evaluations do, or by their files, if these names differ; else
    with the folder, or the path, of each."""
    from vlm_agent.evaluation.offline.plan import recorded_name

    if other is None:
        return recorded_name(path) or path.stem, ""
    runs = recorded_name(path), recorded_name(other)
    own = runs[0] or path.stem, runs[1] or other.stem
    if own[0] != own[1]:
        return own
    folders = path.resolve().parent.name, other.resolve().parent.name
    places = folders if folders[0] != folders[1] else (str(path), str(other))
    first, second = (place if run is None else f"{place} ({run})" for place, run in zip(places, runs, strict=True))
    return first, second


def _write(path: Path, scores: dict) -> None:
    from vlm_agent.files import atomic_write

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(json.dumps(scores, indent=2), encoding="utf-8")


def _say_written(console: "Console", path: Path) -> None:
    console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
