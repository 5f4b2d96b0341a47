"""`vlm-agent merge`: merges a run's adapter into its base and verifies the result."""

import argparse
import random
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vlm_agent.cli.agent_options import add_places, places
from vlm_agent.cli.parser import OK, Commands, add_command, count
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, print_plain

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vlm_agent.models.weights.merge import Samples
    from vlm_agent.training.data.shard_data import ShardDataModule

_DESCRIPTION = """\
Writes an ordinary checkpoint, loads it and compares its logits with those of base and adapter on episodes of the run's
shards, or on its chats. If they differ by more than the rounding of weights, the output is renamed to DIR.refused and
the exit status is 1.

`vlm-agent evaluate --checkpoint DIR` works as with RUN. DIR/model holds the weights and tokenizer for other programs. A
quantised base (QLoRA) is written in its precision before quantisation."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "merge", run, "merge a run's adapter into its base", _DESCRIPTION)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a finished run's folder")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the checkpoint")
    add_places(parser)
    parser.add_argument("--samples", type=count, default=4, metavar="N", help="episodes to compare on (default 4)")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="shards with these episodes (default: the run's)")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.models.run_layout import MODEL_FOLDER
    from vlm_agent.models.weights.merge import merge_run

    with places(options, options.run_folder):
        merge = merge_run(options.run_folder, options.output, _samples(options))
    found, apart = merge.agreement, merge.divergences
    lines = (
        f"{options.output} computes what {options.run_folder} computes.",
        f"  compared    {merge.samples} episodes, {found.positions} learned tokens, in float32",
        f"  same token  {found.same_choice} of {found.positions}",
        f"  logits      differ by up to {found.max_absolute:.3g}, {found.max_relative:.2g} of the largest",
        f"  divergence  {apart.merged:.2g} nats from the run; its own rounding {apart.rounding:.2g}, without the "
        f"adapter {apart.adapter:.2g}",
        f"Wrote {options.output / MODEL_FOLDER}",
    )
    print_plain(make_console(), "\n".join(lines))
    return OK


def _samples(options: argparse.Namespace) -> "Samples":
    """The run's first episodes, as batches for its model: of each episode the sentences that the run learns. Raises
    UserError where neither the run nor `--shards` names data."""
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.models.loss import NOT_FOR_MODELS
    from vlm_agent.models.run_layout import checked
    from vlm_agent.recipe.data import DataRecipe
    from vlm_agent.recipe.model import ModelRecipe
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.training.data.shard_data import data_module_of

    recipe = read_recipe(checked(options.run_folder).recipe)
    learned = recipe.data
    if options.shards is not None:
        shards_key = {"shards": str(options.shards)}
        learned = learned.model_copy(update=shards_key) if learned.shards is not None else DataRecipe(**shards_key)
    if learned.shards is None and learned.chats is None:
        raise UserError(f"{options.run_folder} names no data; name shards to compare on with --shards")
    recipe = recipe.model_copy(update={"model": ModelRecipe(base=str(options.run_folder)), "data": learned})
    chats = learned.chats is not None
    data = cast("ShardDataModule", data_module_of(recipe))
    # like a validation's, of a part of the episodes
    shards = data.shards if chats else ShardDataset(data.folder, split=data.recipe.data.split)
    episodes = data.episodes[: options.samples]

    def batches(model: "PreTrainedModel | PeftModel", tokenizer: "PreTrainedTokenizerBase") -> list[dict]:
        write, rng = data.kind.writer(shards), random.Random(0)  # noqa: S311 (no secret)
        items = groupby(data.kind.items(shards, episodes), key=lambda item: item.episode)
        rows = [data.processor.collate([write(item, rng) for item in of_episode]) for _, of_episode in items]
        return [{name: value for name, value in row.items() if name not in NOT_FOR_MODELS} for row in rows]

    return batches
