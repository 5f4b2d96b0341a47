"""`vlm-agent serve-check`: compares a served model with its run."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.agent_options import add_places, places
from vlm_agent.cli.parser import FAILED, OK, Commands, add_command, count
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, print_plain

if TYPE_CHECKING:
    from vlm_agent.episodes import Episode

_DESCRIPTION = """\
Sends steps of the run's shards to the server, in the turns of training, and compares tokens, sizes of screens and
answers with those of this machine. Names the first difference; the exit status is then 1.

What a server shows decides what is compared: prompt tokens are counted by every server that reports `usage` (vLLM,
`transformers serve`, llama.cpp); their ids are listed by vLLM's /tokenize alone. RUN is a run folder or a merged
checkpoint's DIR."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "serve-check", run, "compare a served model with its run", _DESCRIPTION)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the run that trained the served model")
    add_places(parser)
    parser.add_argument("--endpoint", required=True, metavar="URL", help="the server, http://localhost:8000/v1 …")
    parser.add_argument("--model", metavar="NAME", help="the model's name there (default: the only one it serves)")
    parser.add_argument("--steps", type=count, default=20, metavar="N", help="steps to compare (default 20)")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="where they come from (default the run's own)")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.agents.llm.client import ChatEndpoint, EndpointError
    from vlm_agent.agents.of_run import recipe_of
    from vlm_agent.agents.serve_check import serve_check
    from vlm_agent.agents.vlm import VlmSettings
    from vlm_agent.agents.vlm.agent import VlmAgent

    recipe_of(str(options.run_folder), VlmSettings.SENTENCES, "serve-check")
    episodes = _episodes(options.run_folder, options.shards)
    models = ChatEndpoint(options.endpoint, "").served_models() if options.model is None else [options.model]
    if len(models) != 1:
        raise EndpointError(
            f"{options.endpoint} serves {len(models)} models ({', '.join(models)}); name one with --model"
        )
    chat = ChatEndpoint(options.endpoint, models[0])
    with places(options, options.run_folder):
        agent = VlmAgent.from_run(options.run_folder)
    check = serve_check(agent, chat, episodes, options.steps)
    console = make_console()
    ids = f"the ids of {check.tokenized}" if check.tokenized else "no ids, because the server has no /tokenize"
    print_plain(
        console,
        f"{check.steps} steps are equal: prompt tokens of {check.counted}, {ids}, screens of {check.sizes} size(s), "
        f"answers of {check.steps - check.ties}, {check.ties} tie(s)",
    )
    if check.difference is None:
        return OK
    print_plain(console, check.difference)
    return FAILED


def _episodes(run: Path, where: Path | None) -> "Iterator[Episode]":
    """The run's first episodes, from its own shards or those in `where`; each is read when it is asked for."""
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.models.run_layout import checked
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.training.data.stream import chosen_episodes

    data = read_recipe(checked(run).recipe).data
    folder = data.shards if where is None else where
    if folder is None:
        raise UserError(f"{run} names no data; name shards to compare on with --shards")
    shards = ShardDataset(Path(folder), split=data.split)
    return (shards[index] for index in chosen_episodes(shards, data))
