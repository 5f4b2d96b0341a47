"""`vlm-agent merge`: merges a run's adapter into its base and verifies the result."""

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command, count
from vlm_agent.cli.run_shards import run_episodes
from vlm_agent.console import make_console, quiet_libraries

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vlm_agent.models.weights.merge import Samples

_DESCRIPTION = """\
Writes an ordinary checkpoint, loads it and compares its logits with those of base and adapter on episodes of the run's
shards. If they differ by more than the rounding of weights, the output is renamed to DIR.refused and the exit status
is 1.

`vlm-agent evaluate --checkpoint DIR` works as with RUN. DIR/model holds the weights and tokenizer for other programs. A
quantised base (QLoRA) is written in its precision before quantisation."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "merge", run, "merge a run's adapter into its base", _DESCRIPTION)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a finished run's folder")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the checkpoint")
    parser.add_argument("--samples", type=count, default=4, metavar="N", help="episodes to compare on (default 4)")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="shards with these episodes (default: the run's)")


def run(options: argparse.Namespace) -> int:
    quiet_libraries()

    from vlm_agent.models.run_layout import MODEL_FOLDER
    from vlm_agent.models.weights.merge import merge_run

    merge = merge_run(options.run_folder, options.output, _samples(options))
    found, apart = merge.agreement, merge.divergences
    console = make_console()
    console.print(
        f"{merge.samples} episodes, {found.positions} learned tokens, computed in float32: {found.same_choice} stay "
        f"the most likely; logits differ by up to {found.max_absolute:.3g}, {found.max_relative:.2g} of the largest. "
        f"Divergence from the run: {apart.merged:.2g} nats; the run's own rounding {apart.rounding:.2g}, without the "
        f"adapter {apart.adapter:.2g}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Wrote {options.output / MODEL_FOLDER}", highlight=False, markup=False, soft_wrap=True)
    return OK


def _samples(options: argparse.Namespace) -> "Samples":
    """The run's first episodes, as batches for its model."""
    from vlm_agent.models.family import processor_of
    from vlm_agent.models.loss import NOT_FOR_MODELS
    from vlm_agent.models.run_layout import trained
    from vlm_agent.recipe.run import read_recipe

    recipe = read_recipe(trained(options.run_folder).recipe)
    episodes = list(islice(run_episodes(options.run_folder, options.shards), options.samples))

    def batches(model: "PreTrainedModel | PeftModel", tokenizer: "PreTrainedTokenizerBase") -> list[dict]:
        processor = processor_of(model.config)
        sentences = processor.sentences(tokenizer, recipe.action_language.build())
        rows = [processor.collate([sentences.build(episode)]) for episode in episodes]
        return [{name: value for name, value in row.items() if name not in NOT_FOR_MODELS} for row in rows]

    return batches
