"""`vlm-agent evaluate`: scores an agent on recorded episodes, or on tasks on simulated phones."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli import agent_options
from vlm_agent.cli.parser import OK, Commands, accept_only, add_command, array_task, count, filled, refuse, shipped_file
from vlm_agent.files.console import make_console, stopped_by_signals
from vlm_agent.files.jobs import ArrayTask

if TYPE_CHECKING:
    from vlm_agent.cli.check import Earlier
    from vlm_agent.devices.task_sets import TaskSet
    from vlm_agent.evaluation.benchmark import Benchmark

_DESCRIPTION = """\
Writes predictions.parquet, metrics.json and report.html. Run the same command again to resume, or to score complete
predictions again. In a job array, every task predicts a part, and one command at the end merges and scores all parts:

  vlm-agent evaluate --checkpoint RUN --shards DIR --output OUT --shard-index $SLURM_ARRAY_TASK_ID --shard-count 64
  vlm-agent evaluate --finish --output OUT

A benchmark (eval/*.yaml) sets subsets and scorers, and shards, split, groups and limit, which options override. An
endpoint is a server with the OpenAI chat API (vLLM, llama.cpp, …); its key is read from the environment variable
OPENAI_API_KEY.

Any setting of the agent can be overridden: --agent.past_screens 2 --agent.calls DIR.

With --online the agent does tasks on phones, and the score is its success rate. The tasks are those of the test split
that `simulate` writes with the same seed, or of another --task-set: `browser`, or a YAML file of goals for a phone over
ADB with the commands that reset and judge it (task_set: adb, goals: [goal, reset, judge]; an example is in
vlm_agent/devices/adb/task_set.py). Writes online.json and a trace of every task; resumes as above:

  vlm-agent evaluate --online --checkpoint RUN --tasks 100 --output OUT
  vlm-agent inspect OUT/trained/00012 --animate task.gif"""


_NONE = "none"
"""The value of `--controls` for an evaluation without controls."""

_ONLINE = ("tasks", "seed", "task_set", "scale", "long_screens")
_OFFLINE = ("finish", "benchmark", "shards", "groups", "limit", "shard_index", "shard_count")


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "evaluate",
        run,
        "score an agent",
        _DESCRIPTION,
        keys=agent_options.AGENT_KEYS,
        check=_check,
        verify=_verify,
        more_help=agent_options.agent_keys,
    )
    agent_options.add_agent_options(parser)
    agent_options.add_places(parser)
    parser.add_argument("--benchmark", type=shipped_file, metavar="FILE", help="the benchmark: one of eval/*.yaml")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="a converted folder")
    parser.add_argument("--split", metavar="NAME", help="the split to score on (default test)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--groups", type=Path, metavar="FILE", help="JSON, name → episode ids: groups to score as well")
    parser.add_argument("--limit", type=count, metavar="N", help="at most N episodes, spread evenly over the split")
    parser.add_argument(
        "--workers",
        type=_count_or_0,
        metavar="W",
        help="run: processes that prepare screens (default: half of the cores, at most 8; 0 on two cores or "
        "fewer); --online: phones operated in parallel (default 1)",
    )
    controls = "which of grey_screens, no_history, shuffled_results, or none (default: all)"
    parser.add_argument("--controls", nargs="+", metavar="NAME", help=controls)
    agent_options.add_elements_option(parser)
    parser.add_argument("--online", action="store_true", help="score the agent on tasks on phones")
    parser.add_argument(
        "--task-set", metavar="NAME", help="simulated (default), browser, or a YAML file with `task_set`"
    )
    parser.add_argument("--tasks", type=count, metavar="N", help="number of tasks (default 100)")
    parser.add_argument("--seed", type=_count_or_0, metavar="S", help="the tasks of `simulate --seed S` (default 0)")
    parser.add_argument("--scale", type=count, metavar="N", help="render screens at N times their size; 2 for OCR")
    parser.add_argument("--long-screens", action="store_true", help="--online: show each page as one tall picture")
    parser.add_argument("--shard-index", type=int, metavar="I", help="predict only part I (from 0)")
    parser.add_argument("--shard-count", type=count, metavar="N", help="number of parts")
    parser.add_argument("--finish", action="store_true", help="merge and score all parts; needs only --output")


def run(options: argparse.Namespace) -> int:
    if options.online:
        return _run_online(options)

    from vlm_agent.evaluation.offline.run import evaluate, finish

    if options.finish:
        finish(options.output, make_console())
        return OK
    settings = agent_options.chosen_agent(options)
    with agent_options.places(options, agent_options.run_of_agent(settings)):
        evaluate(
            settings,
            _benchmark(options),
            options.output,
            make_console(),
            controls=_controls(options),
            task=array_task(options) or ArrayTask(),
            workers=options.workers,
            readers=agent_options.chosen_readers(options, settings),
        )
    return OK


def _run_online(options: argparse.Namespace) -> int:
    from vlm_agent.evaluation.online import evaluate_online

    values = filled(options, ("tasks", "seed", "split", "workers"))
    values["task_set"] = _task_set(options)
    values["long_screens"] = options.long_screens
    settings = agent_options.chosen_agent(options)
    values["readers"] = agent_options.chosen_readers(options, settings)
    with stopped_by_signals(), agent_options.places(options, agent_options.run_of_agent(settings)):
        evaluate_online(settings, options.output, make_console(), controls=_controls(options), **values)
    return OK


def _check(options: argparse.Namespace) -> None:
    if options.online:
        refuse(options, _OFFLINE, "is for recorded episodes, not for --online")
        if options.workers == 0:
            options.parser.error("--workers must be 1 or greater with --online")
    elif options.finish:
        accept_only(options, ("finish", "output"), "--finish reads its settings from --output")
        if options.rest:
            options.parser.error(f"--finish reads its settings from --output; remove {options.rest[0]}")
        return
    else:
        refuse(options, _ONLINE, "needs --online, which scores the agent on simulated phones")
        array_task(options)
    agent_options.check_agent_options(options)
    if options.shards is None and options.benchmark is None and not options.online:
        options.parser.error("--shards is missing; name a converted folder, or a --benchmark that sets one")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    if options.finish:
        return
    from vlm_agent.agents.controls import controls_of
    from vlm_agent.agents.of_run import text_inputs_of

    if options.online:
        _task_set(options).tasks(1, options.seed or 0, options.split or "test")
    else:
        _verify_benchmark(options, earlier)
    run = options.checkpoint if options.agent is None else options.agent
    is_written = run is not None and earlier.writes(Path(run))
    recipe = earlier.recipe_of(Path(run)) if is_written else None
    if is_written and recipe is None:  # its own command has a problem, or writes an agent file
        return
    settings = agent_options.chosen_agent(options, recipe)
    controls_of(settings.text_inputs if recipe is None else text_inputs_of(recipe.data), _controls(options))


def _verify_benchmark(options: argparse.Namespace, earlier: "Earlier") -> None:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.errors import DatasetError

    benchmark = _benchmark(options)
    if options.groups is not None and not options.groups.is_file() and not earlier.writes(options.groups):
        raise DatasetError(f"--groups {options.groups} does not exist")
    earlier.check_subsets(benchmark.subsets, benchmark.shards, "subsets of the benchmark")
    if earlier.writes(benchmark.shards):
        return
    dataset = ShardDataset(benchmark.shards, split=benchmark.split)
    if not len(dataset):
        raise DatasetError(f"{benchmark.shards} has no episode in split {benchmark.split}")
    benchmark.episode_indices(dataset.ids, dataset.subsets)
    benchmark.episode_groups()


def _task_set(options: argparse.Namespace) -> "TaskSet":
    from vlm_agent.devices.task_sets import DEFAULT, read_task_set

    name = DEFAULT if options.task_set is None else options.task_set
    task_set = read_task_set(name)
    if "scale" not in type(task_set).model_fields:
        refuse(options, ["scale"], f"has no effect on the task set {name}; remove it")
    return task_set if options.scale is None else read_task_set(name, {"scale": options.scale})


def _controls(options: argparse.Namespace) -> bool | list[str]:
    """All, none or those of these names."""
    return options.controls is None or (options.controls != [_NONE] and options.controls)


def _benchmark(options: argparse.Namespace) -> "Benchmark":
    from vlm_agent.evaluation.benchmark import read_benchmark

    return read_benchmark(options.benchmark, filled(options, ("shards", "split", "groups", "limit")))


def _count_or_0(text: str) -> int:
    return count(text, least=0)
