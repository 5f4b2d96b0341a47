"""`vlm-agent score`: scores predictions again, without a model."""

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vlm_agent.cli.foreign_options import add_foreign_options, check_foreign_options, foreign_options
from vlm_agent.cli.parser import OK, Commands, add_command, count, file_name, refuse
from vlm_agent.errors import DatasetError
from vlm_agent.files.console import make_console, print_plain, stopped_by_signals

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.action_languages import ActionLanguage
    from vlm_agent.cli.foreign_options import ForeignOptions
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.evaluation.scoring.judged import JudgedSteps
    from vlm_agent.evaluation.scoring.metrics import Groups


_ALL = "all"


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "score",
        run,
        "score predictions again, without a model",
        "Scores by the official matcher, the strict one and every --dialect, a published variant of the score (listed\n"
        "below). --against also compares two runs over the same steps, with paired intervals.\n"
        "--report writes a page with all numbers, and pictures from the shards; with --against also of steps that\n"
        "became right or wrong.\n\n"
        "Predictions of another program are a .csv, .jsonl or .parquet file with a row for each step: episode_id,\n"
        "step (from 0), and action_type, touch_yx, lift_yx, typed_text as in Android in the Wild, or text in an\n"
        "action language:\n\n"
        "  vlm-agent score MINE.csv --shards SHARDS --split test",
        check=_check,
        more_help=_dialects,
    )
    parser.add_argument(
        "predictions",
        type=Path,
        metavar="PREDICTIONS",
        help="the folder of an evaluation, or a predictions file, also of another program",
    )
    parser.add_argument(
        "--dialect",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="additional scorers; `all` prints one table of every scorer of the data set, with its blind ceiling",
    )
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
    parser.add_argument(
        "--shards", type=Path, metavar="DIR", help="for --report, and for another program: the recorded episodes"
    )
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
    add_foreign_options(parser)


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
        refuse(options, ("episodes", "flips"), "is for the page: add --report FILE")
    elif options.shards is None and options.benchmark is None:
        options.parser.error("--report needs --shards: the page shows screens from the shards")
    if options.against is None:
        refuse(options, ["flips"], "is the number of steps that changed: add --against OTHER")
    check_foreign_options(options)


@dataclass(frozen=True)
class _Run:
    """`path`: the file that the user named. `rows`: the predictions file, another one for another program. `name`: in
    tables and on the page. `groups` and `language`: of its evaluation. `about`: what its scores record of the episodes.
    `facts`: for the page. `lines`: for the terminal."""

    path: Path
    rows: Path
    name: str
    steps: "JudgedSteps"
    groups: "Groups | None"
    language: "ActionLanguage | None"
    about: Mapping[str, Any]
    facts: Mapping[str, str]
    lines: Sequence[str]


def run(options: argparse.Namespace) -> int:
    with stopped_by_signals(), TemporaryDirectory(prefix="vlm_agent_score_") as folder:
        return _run(options, Path(folder))


def _run(options: argparse.Namespace, folder: Path) -> int:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.evaluation.benchmark import read_groups
    from vlm_agent.evaluation.report.terminal import print_comparison, print_rules, print_scores, print_spread
    from vlm_agent.evaluation.scoring.comparison import compare
    from vlm_agent.evaluation.scoring.dialects import SCORERS
    from vlm_agent.evaluation.scoring.metrics import score
    from vlm_agent.evaluation.spread import spread
    from vlm_agent.files import atomic_write

    # Everything is read before anything is printed or written.
    console = make_console()
    foreign = foreign_options(options)
    named = [name for name in options.dialect if name != _ALL]
    scorers = list(dict.fromkeys((*(SCORERS if foreign is None else foreign.benchmark.scorers), *named)))
    now, before = _runs(options, scorers, foreign, folder)
    groups = now.groups if options.groups is None else read_groups(options.groups)
    shards = None
    if options.report is not None:
        shards = ShardDataset(options.shards) if foreign is None else ShardDataset(foreign.benchmark.shards)
    scores = score(now.steps, groups, scorers=scorers)
    if now.about:
        scores["about"] = dict(now.about)
    if before is not None:
        paths = str(before.path), str(now.path)
        comparison = compare(before.steps, now.steps, groups, scorers=scorers, names=paths)
        scores["against"] = {"before": paths[0], "now": paths[1], **comparison}

    if _ALL in options.dialect:
        scores["spread"] = spread(now.rows, grey=_grey(now))

    print_scores(console, scores, now.name)
    if "spread" in scores:
        print_spread(console, scores["spread"], now.name)
    else:
        _print_slips(console, now, named)
    if before is not None:
        print_comparison(console, scores["against"], before.name, now.name)
    print_rules(console, scores["scorers"])
    _print_parse_failures(console, scores, now)
    for line in (line for one in (now, before) if one is not None for line in one.lines):
        print_plain(console, line)
    if options.output is not None:
        with atomic_write(options.output) as part:
            part.write_text(json.dumps(scores, indent=2), encoding="utf-8")
        print_plain(console, f"Wrote {options.output}")
    if shards is not None:
        earlier = None if before is None else score(before.steps, groups, scorers=scorers)
        _write_report(scores, now, earlier, before, shards, options)
        print_plain(console, f"Wrote {options.report}")
    return OK


def _print_slips(console: "Console", run: _Run, scorers: list[str]) -> None:
    """What the slips decide that `scorers` reproduce."""
    from vlm_agent.evaluation.report.terminal import slip_lines
    from vlm_agent.evaluation.scoring.dialects import find_dialect
    from vlm_agent.evaluation.spread import slips

    if with_slips := [name for name in scorers if find_dialect(name).slips]:
        for line in slip_lines(slips(run.rows, with_slips)):
            print_plain(console, line)


def _grey(run: _Run) -> Path | None:
    """The predictions of the same agent on grey screens, if its evaluation has that control."""
    from vlm_agent.evaluation.about import AGENT, GREY
    from vlm_agent.evaluation.offline.plan import predictions_name

    grey = run.path.with_name(predictions_name(GREY))
    is_agents = run.rows == run.path and run.path.name == predictions_name(AGENT)
    return grey if is_agents and grey.is_file() else None


def _print_parse_failures(console: "Console", scores: dict, run: _Run) -> None:
    """For another program: `evaluate` printed them for its own agents."""
    if run.rows == run.path:
        return
    from vlm_agent.action_languages import default_language
    from vlm_agent.evaluation.predictions import prediction_batches
    from vlm_agent.evaluation.report.terminal import example_line, parse_failure_table

    console.print(parse_failure_table({run.name: scores}))
    rows = chain.from_iterable(prediction_batches(run.rows))
    if line := example_line(run.name, scores, rows, run.language or default_language()):
        print_plain(console, line)


def _runs(
    options: argparse.Namespace, scorers: list[str], foreign: "ForeignOptions | None", folder: Path
) -> tuple[_Run, _Run | None]:
    """The run, and the one that it is compared with. Predictions of other programs are joined in `folder`."""
    from vlm_agent.evaluation.foreign import is_foreign
    from vlm_agent.evaluation.offline.plan import recorded_name
    from vlm_agent.evaluation.predictions import REMEDY

    paths = [_predictions(path) for path in (options.predictions, options.against) if path is not None]
    are_foreign = [is_foreign(path) for path in paths]
    recorded = [None if other else recorded_name(path) for path, other in zip(paths, are_foreign, strict=True)]
    runs = []
    for number, (path, other, name) in enumerate(zip(paths, are_foreign, names_of(paths, recorded), strict=True)):
        if other and foreign is not None:
            runs.append(_of_another_program(path, name, scorers, foreign, folder / f"{number}.parquet"))
            continue
        runs.append(_own(path, name, scorers))
        if not len(runs[-1].steps):
            raise DatasetError(f"{path} holds no step; {REMEDY}")
    if "action_language" in options.chosen and not any(run.language for run in runs if run.rows != run.path):
        options.parser.error("--action-language has no effect: the actions are in the column action_type")
    return runs[0], runs[1] if len(runs) > 1 else None


def _own(path: Path, name: str, scorers: list[str]) -> _Run:
    """The run of an evaluation."""
    from vlm_agent.evaluation.offline.plan import recorded_about, recorded_settings
    from vlm_agent.evaluation.scoring.judged import judge_steps

    steps, about = judge_steps(path, scorers), recorded_about(path)
    about.check_episodes(path, len(steps.episode_ids))
    groups, language = recorded_settings(path) or (None, None)
    return _Run(path, path, name, steps, groups, language, about.split, about.facts(), about.warnings(path))


def _of_another_program(path: Path, name: str, scorers: list[str], foreign: "ForeignOptions", rows: Path) -> _Run:
    from vlm_agent.evaluation.scoring.judged import judge_steps

    found, about = foreign.join(path, rows)
    facts = {"split": f"{about['split']}, {about['episodes']} of {about['episodes_in_split']} episodes"}
    lines = found.lines()
    facts |= {"rows": "; ".join(lines)} if lines else {}
    steps, groups = judge_steps(rows, scorers), foreign.benchmark.episode_groups()
    language = foreign.language if found.has_text_alone else None
    return _Run(path, rows, name, steps, groups, language, about, facts, [f"{path}: {line}" for line in lines])


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
    facts = {"predictions": str(now.path), "shards": str(shards.directory)} | dict(now.facts)
    if before is not None and scores_before is not None:
        runs[before.name], facts["against"] = scores_before, str(before.path)
        facts |= {f"{before.name}, {name}": fact for name, fact in before.facts.items()}
        earlier = Earlier(before.name, before.rows, scores["against"], before.steps)
    write_report(
        options.report,
        runs,
        now.rows,
        shards,
        facts,
        title=f"{' against '.join(runs)} – {now.path}",
        judged=now.steps,
        language=now.language,
        earlier=earlier,
        episodes=options.episodes,
        flips=options.flips,
    )
