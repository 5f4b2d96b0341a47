"""`vlm-agent score`: predictions become numbers again, without a model."""

import json
from pathlib import Path

from vlm_agent.cli.parser import OK, add_command, count, file_name
from vlm_agent.cli.terminal import make_console


def add(commands) -> None:
    parser = add_command(
        commands,
        "score",
        run,
        "score predictions again, without a model",
        "By the official matcher and the strict one, and by every dialect named: a published variant of the score.\n"
        "A name that is none lists those there are. With --against also what changed between two runs over the same\n"
        "steps, with paired intervals. With --report a page with every number, and pictures from the shards.",
    )
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="predictions.parquet of an evaluation")
    parser.add_argument(
        "--dialect", nargs="+", action="extend", default=[], metavar="NAME", help="scorers beside official and strict"
    )
    parser.add_argument(
        "--against", type=Path, metavar="OTHER_PREDICTIONS", help="an earlier run over the same steps, to compare with"
    )
    parser.add_argument("--groups", type=Path, metavar="FILE", help="JSON: name → episode ids, to score apart")
    parser.add_argument("--output", type=file_name(".json"), metavar="FILE", help="write every number here too")
    parser.add_argument("--report", type=file_name(".html"), metavar="FILE", help="write a page of it, with pictures")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="for --report: the folder that was evaluated on")
    parser.add_argument(
        "--episodes", type=count, default=40, metavar="N", help="shown in the report: half the worst, half at random"
    )


def run(options) -> int:
    if (options.report is None) != (options.shards is None):
        options.parser.error("--report and --shards go together: the page shows screens, which the shards hold")

    from vlm_agent.evaluation.groups import read_groups
    from vlm_agent.evaluation.judged import judge_steps
    from vlm_agent.evaluation.metrics import score
    from vlm_agent.evaluation.score_tables import print_rules, print_scores
    from vlm_agent.evaluation.verdicts import SCORERS

    console = make_console()
    scorers = list(dict.fromkeys((*SCORERS, *options.dialect)))
    groups = read_groups(options.groups)
    steps = judge_steps(options.predictions, scorers)
    scores = score(steps, groups, scorers=scorers)
    print_scores(console, scores, options.predictions.stem)
    before = None
    if options.against is not None:
        before = judge_steps(options.against, scorers)
        scores["against"] = _compare(console, before, steps, groups, scorers, options)
    print_rules(console, scores["scorers"])
    if options.output is not None:
        _write(options.output, scores)
        _say_written(console, options.output)
    if options.report is not None:
        earlier = None if before is None else score(before, groups, scorers=scorers)
        _write_report(scores, earlier, options)
        _say_written(console, options.report)
    return OK


def _compare(console, before, steps, groups, scorers: list[str], options) -> dict:
    from vlm_agent.evaluation.comparison import compare
    from vlm_agent.evaluation.score_tables import print_comparison

    comparison = compare(before, steps, groups, scorers=scorers)
    print_comparison(console, comparison, str(options.against), str(options.predictions))
    return {"first": str(options.against), "second": str(options.predictions), **comparison}


def _write_report(scores: dict, scores_before: dict | None, options) -> None:
    from vlm_agent.datasets.shards import ShardDataset
    from vlm_agent.evaluation.report import Earlier, write_report

    name, name_before = _names(options.predictions, options.against)
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
        earlier=earlier,
        episodes=options.episodes,
    )


def _names(path: Path, other: Path | None) -> tuple[str, str]:
    """Short ones that tell two files apart: predictions.parquet is what most are called."""
    if other is None:
        return path.stem, ""
    for names in ((path.stem, other.stem), (path.resolve().parent.name, other.resolve().parent.name)):
        if names[0] != names[1]:
            return names
    return str(path), str(other)


def _write(path: Path, scores: dict) -> None:
    from vlm_agent.datasets import written_whole

    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(json.dumps(scores, indent=2), encoding="utf-8")


def _say_written(console, path: Path) -> None:
    console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
