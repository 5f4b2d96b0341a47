"""`vlm-agent annotate`: write notes for the steps of shards, check them, review them."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, accept_only, add_command, array_task, count, port, refuse
from vlm_agent.files.console import make_console

if TYPE_CHECKING:
    from vlm_agent.annotation.job.run import Service

_DESCRIPTION = """\
Copies shards to a new folder in which every step has the four texts of Chain-of-Action-Thought: a description of the
screen (without the goal), the thought before the action, a description of the action, and its result. Texts that a step
has already are kept. `--texts plan` writes a plan and the immediate step instead (D-PoT). Prints an estimate of the
cost before the first call. The API key is read from OPENAI_API_KEY.

Run the same command again to resume: every reply is on disk before it is used, so a request is sent once, and the
result is the same to the byte. In a job array, each task annotates a part of the shards, and one command at the end
completes the result. --check lists action descriptions that contradict their action or name nothing on the screen.
--review serves a page on this machine to accept and edit texts; at its end, the edits are written to the shards:

  vlm-agent annotate SHARDS --endpoint http://localhost:8000/v1 --model NAME --output ANNOTATED
  vlm-agent annotate --check SHARDS
  vlm-agent annotate --review --output ANNOTATED"""


def add(commands: Commands) -> None:
    parser = add_command(commands, "annotate", run, "write notes for the steps of shards", _DESCRIPTION, check=_check)
    parser.add_argument("shards", type=Path, nargs="?", metavar="SHARDS", help="a converted folder")
    parser.add_argument("--endpoint", metavar="URL", help="a served vision-language model, http://localhost:8000/v1 …")
    parser.add_argument("--model", metavar="NAME", help="name of the model at the endpoint")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="a new folder, or the folder of the same annotation to resume"
    )
    parser.add_argument(
        "--texts",
        nargs="+",
        choices=("screen", "think", "action", "result", "plan"),
        metavar="NAME",
        help="which texts to write: screen think action result (default these four), plan",
    )
    parser.add_argument(
        "--screen", choices=("html", "picture", "both"), help="the screen in requests for a plan (default both)"
    )
    parser.add_argument("--replace", action="store_true", help="write texts also where a step has them already")
    parser.add_argument("--split", metavar="NAME", help="only this split: train, validation or test")
    parser.add_argument("--subset", metavar="NAME", help="only this subset")
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N episodes")
    parser.add_argument("--prompts", type=Path, metavar="DIR", help="a folder with your own prompts (see docs/data.md)")
    parser.add_argument("--max-tokens", type=count, metavar="N", default=512, help="limit of a reply (default 512)")
    parser.add_argument("--concurrency", type=count, metavar="N", default=8, help="calls at a time (default 8)")
    parser.add_argument(
        "--price", type=_amount, nargs=2, metavar=("READ", "WRITTEN"), help="money per million tokens read and written"
    )
    parser.add_argument(
        "--max-cost", type=_positive, metavar="MONEY", help="stop before the calls cost more; needs --price"
    )
    parser.add_argument("--requests-per-minute", type=_positive, metavar="N", help="rate limit of the requests")
    parser.add_argument(
        "--accept-missing", action="store_true", help="leave texts empty whose calls fail, and complete the output"
    )
    parser.add_argument("--shard-index", type=int, metavar="I", help="annotate only part I (from 0) of the shards")
    parser.add_argument("--shard-count", type=count, metavar="N", help="number of parts")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--finish", action="store_true", help="complete the output of all parts; needs only --output")
    modes.add_argument(
        "--check", action="store_true", help="list action descriptions that need a look; needs only SHARDS"
    )
    modes.add_argument("--review", action="store_true", help="serve the page of the review; needs only --output")
    parser.add_argument(
        "--port", type=port, default=0, metavar="P", help="port of the review page (default: any free one)"
    )


def run(options: argparse.Namespace) -> int:
    console = make_console()
    if options.check:
        from vlm_agent.annotation.job.finish import check

        check(options.shards, options.split, options.subset, console)
        return OK
    if options.finish:
        from vlm_agent.annotation.job import finish

        finish(options.output, console)
        return OK
    if options.review:
        from vlm_agent.annotation.review import review

        review(options.output, options.port, console)
        return OK
    from vlm_agent.annotation.annotator import TEXTS
    from vlm_agent.annotation.job import AnnotationSettings, annotate
    from vlm_agent.annotation.prompts import TEMPLATES, Prompts

    texts = TEXTS if options.texts is None else tuple(options.texts)
    part = (options.split, options.subset, options.limit)
    settings = AnnotationSettings(options.model, texts, options.replace, options.max_tokens, *part)
    annotate(
        options.shards,
        settings,
        Prompts(options.prompts or TEMPLATES, (options.screen or "both") if "plan" in texts else None),
        _service(options),
        options.output,
        console,
        array_task(options),
    )
    return OK


def _check(options: argparse.Namespace) -> None:
    error = options.parser.error
    if options.check:
        accept_only(options, ("check", "shards", "split", "subset"), "--check takes SHARDS, --split and --subset")
        if options.shards is None:
            error("--check needs SHARDS, the folder to check")
        return
    if options.finish or options.review:
        allowed = ("finish", "output") if options.finish else ("review", "output", "port")
        mode = "--finish" if options.finish else "--review"
        accept_only(options, allowed, f"{mode} reads everything from --output")
        if options.output is None:
            error(f"{mode} needs --output")
        return
    array_task(options)
    refuse(options, ["port"], "needs --review")
    if "plan" not in (options.texts or ()):
        refuse(options, ["screen"], "needs --texts plan")
    if options.price is None:
        refuse(options, ["max_cost"], "needs --price")
    if options.shards is None or options.endpoint is None or options.model is None or options.output is None:
        error("name a folder of shards, --endpoint, --model and --output")


def _service(options: argparse.Namespace) -> "Service":
    from vlm_agent.agents.llm.calls import CallLimits
    from vlm_agent.annotation.job.run import Service
    from vlm_agent.errors import UserError
    from vlm_agent.recipe.yaml_file import validated

    price = None if options.price is None else dict(zip(("read", "written"), options.price, strict=True))
    chosen = {"price": price, "max_cost": options.max_cost, "requests_per_minute": options.requests_per_minute}
    limits = validated(CallLimits, chosen, "options", UserError)
    return Service(options.endpoint, limits, options.concurrency, options.accept_missing)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, 0 or greater")
    return value


def _positive(text: str) -> float:
    value = _amount(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} must be greater than 0")
    return value
