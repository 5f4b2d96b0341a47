"""`vlm-agent evaluate`: a run, or a model behind an endpoint, becomes numbers and pictures."""

from pathlib import Path

from vlm_agent.cli.parser import OK, add_command, count
from vlm_agent.cli.terminal import make_console, quiet_libraries

_DESCRIPTION = """\
Writes predictions.parquet, metrics.json and report.html. The same command again goes on where a run was stopped, and
scores again where nothing is left to predict. On a job array, each task predicts a share, and one command at the end
merges and scores what they made:

  vlm-agent evaluate --checkpoint RUN --shards DIR --output OUT --shard-index $SLURM_ARRAY_TASK_ID --shard-count 64
  vlm-agent evaluate --finish --output OUT

A benchmark (eval/*.yaml) names shards, split, groups and limit; options given beside it win. An endpoint is one that
speaks OpenAI's chat interface (vLLM, llama.cpp, …); a key for it is taken from the environment, OPENAI_API_KEY.

With --online the agent acts: it does tasks on simulated phones, those of the test split that `simulate` makes with the
same seed, and what counts is whether they are done. Writes online.json and a trace of every task; goes on as above:

  vlm-agent evaluate --online --checkpoint RUN --tasks 100 --output OUT
  vlm-agent inspect OUT/trained/00012 --animate task.gif"""


def add(commands) -> None:
    parser = add_command(commands, "evaluate", run, "score an agent on recorded episodes", _DESCRIPTION)
    parser.add_argument("--checkpoint", type=Path, metavar="RUN", help="a run's folder, or one of its checkpoints")
    parser.add_argument("--benchmark", type=Path, metavar="FILE", help="what to score on: one of eval/*.yaml")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="a converted folder")
    parser.add_argument("--split", metavar="NAME", help="what to score on (default test)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--groups", type=Path, metavar="FILE", help="JSON: name → episode ids, to score apart")
    parser.add_argument("--limit", type=count, metavar="N", help="only N episodes, spread over the split")
    parser.add_argument(
        "--no-controls", action="store_true", help="leave out the runs on grey screens and without history"
    )
    _add_checkpoint(parser)
    _add_endpoint(parser)
    _add_online(parser)
    parser.add_argument("--shard-index", type=int, metavar="I", help="predict only share I (from 0) …")
    parser.add_argument("--shard-count", type=count, metavar="N", help="… of N")
    parser.add_argument("--finish", action="store_true", help="merge and score all shares; needs --output only")


def _add_checkpoint(parser) -> None:
    parser.add_argument("--bf16", action="store_true", help="mixed precision: faster, not bit-exact")
    parser.add_argument(
        "--constrained",
        action="store_true",
        help="score the agent kept to the action language too, beside the free one",
    )
    parser.add_argument(
        "--batch-tokens", type=count, metavar="N", help="tokens read at once, as memory allows (default 8192)"
    )


def _add_endpoint(parser) -> None:
    parser.add_argument("--endpoint", metavar="URL", help="instead of --checkpoint: http://localhost:8000/v1, say")
    parser.add_argument("--model", metavar="NAME", help="what the endpoint calls the model")
    parser.add_argument(
        "--past-screens", type=_count_or_0, default=2, metavar="N", help="screens shown before this one (default 2)"
    )
    parser.add_argument(
        "--max-tokens", type=count, default=128, metavar="N", help="an answer's length, at most (default 128)"
    )
    parser.add_argument("--concurrency", type=count, default=8, metavar="N", help="calls at once (default 8)")


def _add_online(parser) -> None:
    parser.add_argument("--online", action="store_true", help="have the agent do tasks on simulated phones")
    parser.add_argument("--tasks", type=count, metavar="N", help="how many (default 100) …")
    parser.add_argument("--seed", type=_count_or_0, metavar="S", help="… and which: those of `simulate --seed S` (0)")
    parser.add_argument("--workers", type=count, metavar="W", help="phones operated at once (default 1)")


def run(options) -> int:
    _check(options)
    quiet_libraries()
    if options.online:
        return _run_online(options)

    from vlm_agent.evaluation.offline import evaluate, finish
    from vlm_agent.evaluation.parts import Share

    if options.finish:
        finish(options.output, make_console())
        return OK
    share = Share() if options.shard_index is None else Share(options.shard_index, options.shard_count)
    evaluate(
        _source(options),
        _benchmark(options),
        options.output,
        make_console(),
        controls=not options.no_controls,
        constrained=options.constrained,
        share=share,
    )
    return OK


def _run_online(options) -> int:
    from vlm_agent.evaluation.online import evaluate_online

    given = {name: getattr(options, name) for name in ("tasks", "seed", "workers")}
    given = {name: value for name, value in given.items() if value is not None}
    evaluate_online(_source(options), options.output, make_console(), controls=not options.no_controls, **given)
    return OK


def _check(options) -> None:
    _check_online(options)
    error = options.parser.error
    if (options.shard_index is None) != (options.shard_count is None):
        error("--shard-index and --shard-count go together")
    sources = [options.checkpoint, options.endpoint]
    if options.finish:
        given = (*sources, options.shards, options.benchmark, options.shard_index)
        if any(value is not None for value in given):
            error("--finish takes what the shares were given: name only --output")
        return
    if sources.count(None) != 1:
        error("give either --checkpoint, a finished run, or --endpoint and --model")
    if (options.endpoint is None) != (options.model is None):
        error("--endpoint and --model go together")
    if options.shards is None and options.benchmark is None and not options.online:
        error("--shards is missing: a converted folder; or give --benchmark, which names one")
    if options.endpoint is not None and (options.constrained or options.bf16 or options.batch_tokens):
        error("--constrained, --bf16 and --batch-tokens are for a --checkpoint; an endpoint decodes as it is served")


def _check_online(options) -> None:
    """That what is for recorded episodes and what is for phones is not mixed."""
    recorded = ("benchmark", "shards", "split", "groups", "limit", "shard_index", "shard_count")
    names = [name for name in recorded if getattr(options, name) is not None]
    names += [name for name in ("finish", "constrained") if getattr(options, name)]
    alone = [name for name in ("tasks", "seed", "workers") if getattr(options, name) is not None]
    if options.online and names:
        options.parser.error(f"--{names[0].replace('_', '-')} is for recorded episodes, and does not go with --online")
    if not options.online and alone:
        options.parser.error(f"--{alone[0]} is for --online, which has the agent act on simulated phones")


def _source(options):
    from vlm_agent.agents.chat import ChatEndpoint
    from vlm_agent.agents.vlm import BATCH_TOKENS
    from vlm_agent.evaluation.sources import Checkpoint, Endpoint
    from vlm_agent.training.recipe import LanguageRecipe

    if options.endpoint is None:
        return Checkpoint(options.checkpoint, options.bf16, options.batch_tokens or BATCH_TOKENS)
    chat = ChatEndpoint(options.endpoint, options.model)
    return Endpoint(chat, LanguageRecipe(), options.past_screens, options.max_tokens, options.concurrency)


def _benchmark(options):
    """The benchmark's file under what the command line says."""
    from vlm_agent.evaluation.benchmarks import read_benchmark
    from vlm_agent.evaluation.groups import read_groups
    from vlm_agent.evaluation.offline import Benchmark

    given = {key: getattr(options, key) for key in ("shards", "split", "groups", "limit")}
    given = {key: value for key, value in given.items() if value is not None}
    if options.benchmark is not None:
        recipe = read_benchmark(options.benchmark)
        given = recipe.model_dump(include={"shards", "split", "groups", "limit", "name", "dialect"}) | given
    groups = given.get("groups")
    given |= {"shards": Path(given["shards"]), "groups": read_groups(None if groups is None else Path(groups))}
    return Benchmark(**{"split": "test"} | given)


def _count_or_0(text: str) -> int:
    return 0 if text == "0" else count(text)
