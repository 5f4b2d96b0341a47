"""`vlm-agent compare`: several agents on the same steps and the same phones, in one table."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command, count, shipped_file
from vlm_agent.files.console import make_console, say

if TYPE_CHECKING:
    from vlm_agent.cli.check import Earlier
    from vlm_agent.evaluation.comparison.stages import Stages

_DESCRIPTION = """\
Reads a comparison file (eval/comparisons/*.yaml): agents, one benchmark, online tasks, seeds. Trains the agents that
are recipes, evaluates all of them on recorded episodes and on simulated phones, and writes comparison.html and
comparison.json. Every stage is a command that is printed before it runs. Run the same command again to resume:

  vlm-agent compare eval/comparisons/five_systems.yaml --output runs/comparison
  vlm-agent compare FILE --output runs/on_aitw --shards SHARDS --benchmark eval/aitw_standard.yaml

On a cluster, slurm/pipeline.sh compare runs the stages as jobs, by --list-stages, --stage and --report."""


def add(commands: Commands) -> None:
    summary = "train and score several agents, in one table"
    parser = add_command(commands, "compare", run, summary, _DESCRIPTION, check=_check, verify=_verify)
    parser.add_argument("comparison", type=shipped_file, metavar="FILE", help="a comparison file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for runs, results and table")
    parser.add_argument(
        "--shards", type=Path, metavar="DIR", help="a converted folder, in place of simulated demonstrations"
    )
    parser.add_argument(
        "--benchmark",
        type=shipped_file,
        metavar="FILE",
        help="with --shards: their benchmark file (default: the comparison's; without one, the split test)",
    )
    seeds_help = "seeds of training, in place of the file's; more can be added to the same output later"
    parser.add_argument("--seeds", type=int, nargs="+", metavar="S", help=seeds_help)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only tests that all stages run")
    parser.add_argument(
        "--endpoint", metavar="URL", help="a served model for prompted agents, in place of the one that is trained"
    )
    parser.add_argument(
        "--serve",
        metavar="COMMAND",
        help="in place of --endpoint: a command that serves a model on port {port}; it runs beside each stage that "
        "asks it, and ends with the stage: 'vllm serve Qwen/Qwen2.5-VL-7B-Instruct --port {port}'",
    )
    parser.add_argument("--model", metavar="NAME", help="name of the model at the endpoint, or on that server")
    parser.add_argument(
        "--gpus", type=count, default=1, metavar="N", help="GPUs of each training, and beside --serve (default 1)"
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--list-stages",
        action="store_true",
        help="only print the stages, separated by tabs: name, number of GPUs, done or open, stages that it needs, "
        "output",
    )
    parser.add_argument(
        "--hours",
        metavar="GPU",
        help="with --list-stages: also the estimated hours, from shards that exist: of a training on such GPUs (H100, "
        "A100-80, ...), at least of an evaluation, of prompts on a server with 20,000 tokens read and 1,000 written a "
        "second; - for others",
    )
    part.add_argument("--stage", metavar="NAME", help="only run this stage, also beside others")
    part.add_argument("--report", action="store_true", help="only write the table of what is done")


def _check(options: argparse.Namespace) -> None:
    if options.endpoint is not None and options.serve is not None:
        options.parser.error("--endpoint and --serve exclude each other")
    if (options.endpoint is None and options.serve is None) != (options.model is None):
        options.parser.error("--model names the model of --endpoint or --serve: use both or neither")
    if options.serve is not None:
        try:
            shlex.split(options.serve)
        except ValueError as error:
            options.parser.error(f"--serve: {error}")
        if "{port}" not in options.serve:
            options.parser.error("--serve needs {port} in its command, for the port that this command chooses")
    if options.hours is not None and not options.list_stages:
        options.parser.error("--hours is for --list-stages")
    if options.benchmark is not None and options.shards is None:
        options.parser.error("--benchmark needs --shards; simulated demonstrations have the file's own benchmark")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    from vlm_agent.cli.check import problems_of
    from vlm_agent.datasets.shards.dataset import read_manifest
    from vlm_agent.evaluation.comparison.records import Records
    from vlm_agent.evaluation.comparison.run import verify
    from vlm_agent.evaluation.comparison.settings import ComparisonError

    stages = _stages(options)
    verify(stages)
    if options.shards is not None and not earlier.writes(options.shards):
        read_manifest(options.shards)
    earlier.outputs.append(options.output.absolute() / "agents")  # written by each stage
    records = Records(options.output)
    commands = [stage.words for stage in stages if not records.is_done(stage)]
    if problems := dict.fromkeys(problems_of(commands, earlier)):
        raise ComparisonError("\n".join(problems))


def run(options: argparse.Namespace) -> int:
    from vlm_agent.errors import Stopped
    from vlm_agent.evaluation.comparison.run import compare, listing, report, run_stage

    stages = _stages(options)
    if options.list_stages:
        say("\n".join(listing(stages, options.hours)))
        return OK
    try:
        if options.stage is not None:
            return run_stage(stages, options.stage, make_console())
        (report if options.report else compare)(stages, make_console())
    except Stopped as stopped:
        say(str(stopped), stderr=True)
        return Stopped.STATUS
    return OK


def _stages(options: argparse.Namespace) -> "Stages":
    from vlm_agent.evaluation.comparison.settings import Endpoint, read_comparison
    from vlm_agent.evaluation.comparison.stages import Layout, Stages

    overrides = {} if options.seeds is None else {"seeds": options.seeds}
    endpoint = None if options.model is None else Endpoint(options.endpoint or "", options.model, options.serve or "")
    comparison = read_comparison(options.comparison, overrides)
    layout = Layout(options.output, options.shards, options.benchmark)
    return Stages(comparison, layout, options.quick, endpoint, options.gpus)
