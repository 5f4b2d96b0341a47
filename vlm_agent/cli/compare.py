"""`vlm-agent compare`: several agents on the same steps and the same phones, in one table."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command, shipped_file
from vlm_agent.console import make_console, say

_DESCRIPTION = """\
Reads a comparison file (eval/comparisons/*.yaml): agents, one benchmark, online tasks, seeds. Trains the agents that
are recipes, evaluates all of them on recorded episodes and on simulated phones, and writes comparison.html and
comparison.json. Every stage is a command that is printed before it runs. Run the same command again to resume:

  vlm-agent compare eval/comparisons/five_systems.yaml --output runs/comparison
  vlm-agent compare eval/comparisons/five_systems.yaml --output runs/on_aitw --shards shards/aitw_standard \\
      --benchmark eval/aitw_standard.yaml

On a cluster, slurm/pipeline.sh compare runs the stages as jobs, by --list-stages, --stage and --report."""


def add(commands: Commands) -> None:
    summary = "train and score several agents, in one table"
    parser = add_command(commands, "compare", run, summary, _DESCRIPTION, check=_check)
    parser.add_argument("comparison", type=shipped_file, metavar="FILE", help="a comparison file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for runs, results and table")
    parser.add_argument(
        "--shards", type=Path, metavar="DIR", help="a converted folder, in place of simulated demonstrations"
    )
    parser.add_argument(
        "--benchmark",
        type=shipped_file,
        metavar="FILE",
        help="with --shards: their benchmark file (default: episodes of the split test)",
    )
    seeds_help = "seeds of training, in place of the file's; more can be added to the same output later"
    parser.add_argument("--seeds", type=int, nargs="+", metavar="S", help=seeds_help)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only tests that all stages run")
    parser.add_argument(
        "--endpoint", metavar="URL", help="a served model for prompted agents, in place of the one that is trained"
    )
    parser.add_argument("--model", metavar="NAME", help="name of the model at the endpoint")
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--list-stages",
        action="store_true",
        help="only print the stages, separated by tabs: name, gpu or cpu, done or open, stages that it needs, output",
    )
    part.add_argument("--stage", metavar="NAME", help="only run this stage, also beside others")
    part.add_argument("--report", action="store_true", help="only write the table of what is done")


def _check(options: argparse.Namespace) -> None:
    if (options.endpoint is None) != (options.model is None):
        options.parser.error("--endpoint and --model must be used together")
    if options.benchmark is not None and options.shards is None:
        options.parser.error("--benchmark needs --shards; simulated demonstrations have the file's own benchmark")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.comparison.run import compare, listing, report, run_stage
    from vlm_agent.comparison.settings import Endpoint, read_comparison
    from vlm_agent.comparison.stages import Layout, Stages
    from vlm_agent.errors import Stopped

    overrides = {} if options.seeds is None else {"seeds": options.seeds}
    endpoint = None if options.endpoint is None else Endpoint(options.endpoint, options.model)
    comparison = read_comparison(options.comparison, overrides)
    layout = Layout(options.output, options.shards, options.benchmark)
    stages = Stages(comparison, layout, options.quick, endpoint)
    if options.list_stages:
        say("\n".join(listing(stages)))
        return OK
    try:
        if options.stage is not None:
            return run_stage(stages, options.stage, make_console())
        (report if options.report else compare)(stages, make_console())
    except Stopped as stopped:
        say(str(stopped), stderr=True)
        return Stopped.STATUS
    return OK
