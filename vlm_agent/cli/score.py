"""`vlm-agent score`: scores predictions again, without a model."""

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command, count, file_name, refuse
from vlm_agent.console import make_console
from vlm_agent.errors import DatasetError

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.evaluation.offline.plan import RecordedAbout, RecordedSettings
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
    parser.add_argument(
        "predictions",
        type=Path,
        metavar="PREDICTIONS",
        help="the folder of an evaluation, or a predictions file",
    )
    parser.add_argument("--dialect", nargs="+", action="extend", default=[], metavar="NAME", help="additional scorers")
    parser.add_argument(
        "--against", type=Path, metavar="OTHER", help="an earlier run over the same steps, in the same form"
    )
    parser.add_argument(
        "--groups",
        type=Path,
        metavar="FILE",
        help="JSON, name → episode ids: groups to score as well (default: those of the evaluation)",
    )
    parser.add_argument(
        "--output",
        type=file_name(".json"),
        metavar="FILE",
        help="also write all numbers to FILE, and with --against all steps that changed, counted from 0",
    )
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
        help="with --against: changed steps in the report, each way, by official and by strict alone (default 10)",
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
        refuse(options, ["flips"], "is the number of steps that changed: add --against OTHER")


@dataclass(frozen=True)
class _Run:
    """`name`: in tables and on the page. `recorded`: by the plan of its evaluation, `about`: by its metrics."""

    path: Path
    name: str
    steps: "JudgedSteps"
    recorded: "RecordedSettings | None"
    about: "RecordedAbout"


def run(options: argparse.Namespace) -> int:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.evaluation.report.terminal import print_comparison, print_rules, print_scores
    from vlm_agent.evaluation.scoring.comparison import compare
    from vlm_agent.evaluation.scoring.dialects import SCORERS
    from vlm_agent.evaluation.scoring.metrics import score

    # Everything is read before anything is printed or written.
    console = make_console()
    scorers = list(dict.fromkeys((*SCORERS, *options.dialect)))
    now, before = _runs(options, scorers)
    groups = _groups(options.groups, now)
    shards = None if options.report is None else ShardDataset(options.shards)
    scores = score(now.steps, groups, scorers=scorers)
    if before is not None:
        paths = str(before.path), str(now.path)
        comparison = compare(before.steps, now.steps, groups, scorers=scorers, names=paths)
        scores["against"] = {"before": paths[0], "now": paths[1], **comparison}

    print_scores(console, scores, now.name)
    if before is not None:
        print_comparison(console, scores["against"], before.name, now.name)
    print_rules(console, scores["scorers"])
    for line in (line for one in (now, before) if one is not None for line in one.about.warnings(one.path)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if options.output is not None:
        _write(options.output, scores)
        _say_written(console, options.output)
    if shards is not None:
        earlier = None if before is None else score(before.steps, groups, scorers=scorers)
        _write_report(scores, now, earlier, before, shards, options)
        _say_written(console, options.report)
    return OK


def _runs(options: argparse.Namespace, scorers: list[str]) -> tuple[_Run, _Run | None]:
    """The run, and the one that it is compared with."""
    from vlm_agent.evaluation.offline.plan import recorded_about, recorded_name, recorded_settings
    from vlm_agent.evaluation.predictions import REMEDY
    from vlm_agent.evaluation.scoring.judged import judge_steps

    paths = [_predictions(path) for path in (options.predictions, options.against) if path is not None]
    names = names_of(paths, [recorded_name(path) for path in paths])
    now, *before = (
        _Run(path, name, judge_steps(path, scorers), recorded_settings(path), recorded_about(path))
        for path, name in zip(paths, names, strict=True)
    )
    for one in (now, *before):
        if not len(one.steps):
            raise DatasetError(f"{one.path} holds no step; {REMEDY}")
        one.about.check_episodes(one.path, len(one.steps.episode_ids))
    return now, before[0] if before else None


def _predictions(path: Path) -> Path:
    """The agent's own predictions in the output folder of an evaluation; a file as it is."""
    from vlm_agent.evaluation.offline.plan import AGENT, predictions_name
    from vlm_agent.evaluation.online.evaluate import ONLINE
    from vlm_agent.evaluation.online.evaluate import PLAN as ONLINE_PLAN

    if not path.is_dir():
        return path
    predictions = path / predictions_name(AGENT)
    if (path / ONLINE_PLAN).is_file() and not predictions.exists():
        raise DatasetError(
            f"{path} holds an online evaluation, which has no predictions to score again; its scores are in {ONLINE}"
        )
    return predictions


def names_of(paths: Sequence[Path], recorded: Sequence[str | None]) -> list[str]:
    """What tables call the runs: as their evaluations do, or by their files. Runs of the same name, and controls of
    another folder, have what distinguishes their folders before it."""
    from vlm_agent.evaluation.offline.plan import AGENT, predictions_name

    own = [name or path.stem for path, name in zip(paths, recorded, strict=True)]
    folders = [path.resolve().parent for path in paths]
    is_control = [
        name is not None and path.name != predictions_name(AGENT) for path, name in zip(paths, recorded, strict=True)
    ]
    if len(set(own)) == len(own) and (len(set(folders)) == 1 or not any(is_control)):
        return own
    if len(set(folders)) == 1:
        return [str(path) for path in paths]
    return [f"{place} ({name})" for place, name in zip(_distinguished(folders), own, strict=True)]


def _distinguished(folders: Sequence[Path]) -> list[str]:
    """The last parts in which paths differ; a number, such as a seed, with its parent."""
    reversed_parts = [folder.parts[::-1] for folder in folders]
    at = next(place for place, parts in enumerate(zip(*reversed_parts, strict=False)) if len(set(parts)) > 1)
    return [f"{parts[at + 1]}/{parts[at]}" if parts[at].isdigit() else parts[at] for parts in reversed_parts]


def _groups(path: Path | None, run: _Run) -> "Groups | None":
    """Those of the file, else of the evaluation."""
    from vlm_agent.evaluation.benchmark import read_groups

    if path is None and run.recorded is not None:
        return run.recorded.groups
    return read_groups(path)


def _write_report(
    scores: dict,
    now: _Run,
    scores_before: dict | None,
    before: _Run | None,
    shards: "ShardDataset",
    options: argparse.Namespace,
) -> None:
    from vlm_agent.evaluation.report import Earlier, write_report

    runs, earlier = {now.name: scores}, None
    facts = {"predictions": str(now.path), "shards": str(options.shards)} | now.about.facts()
    if before is not None and scores_before is not None:
        runs[before.name], facts["against"] = scores_before, str(before.path)
        facts |= {f"{before.name}, {name}": fact for name, fact in before.about.facts().items()}
        earlier = Earlier(before.name, before.path, scores["against"], before.steps)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    write_report(
        options.report,
        runs,
        now.path,
        shards,
        facts,
        title=f"{' against '.join(runs)} – {now.path}",
        judged=now.steps,
        language=None if now.recorded is None else now.recorded.language,
        earlier=earlier,
        episodes=options.episodes,
        flips=options.flips,
    )


def _write(path: Path, scores: dict) -> None:
    from vlm_agent.files import atomic_write

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(json.dumps(scores, indent=2), encoding="utf-8")


def _say_written(console: "Console", path: Path) -> None:
    console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
