"""`vlm-agent merge`: a run's adapter folded into its base, and proof that this changed nothing."""

from pathlib import Path

from vlm_agent.cli.parser import OK, add_command, count
from vlm_agent.cli.terminal import make_console, quiet_libraries

_DESCRIPTION = """\
Writes an ordinary checkpoint, loads it again and compares its logits with those of base and adapter on episodes of the
run's shards. Where they differ by more than rounding explains, nothing is left behind and the exit status is 1.

DIR is to `vlm-agent evaluate --checkpoint` what RUN is; DIR/model holds the weights and tokenizer for other programs.
A quantised base (QLoRA) comes out as large as it was before it was quantised."""


def add(commands) -> None:
    parser = add_command(commands, "merge", run, "fold a run's adapter into its base", _DESCRIPTION)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a finished run's folder")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the checkpoint goes")
    parser.add_argument("--samples", type=count, default=4, metavar="N", help="episodes to compare on (default 4)")
    parser.add_argument("--shards", type=Path, metavar="DIR", help="where they come from (default the run's own)")


def run(options) -> int:
    quiet_libraries()

    from vlm_agent.models.merge import merge_run
    from vlm_agent.models.trained import MODEL_FOLDER

    merge = merge_run(options.run_folder, options.output, _samples(options))
    found = merge.agreement
    console = make_console()
    console.print(
        f"{merge.samples} episodes, {found.positions} learned tokens: {found.same_choice} stay the most likely; logits "
        f"differ by up to {found.max_absolute:.3g}, {found.max_relative:.2g} of the largest ({merge.tolerance:g} is "
        f"accepted in {merge.arithmetic})",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Wrote {options.output / MODEL_FOLDER}", highlight=False, markup=False, soft_wrap=True)
    return OK


def _samples(options):
    """The run's first episodes, as batches for its model."""
    from vlm_agent.datasets.shards import ShardDataset
    from vlm_agent.models.merge import MergeError
    from vlm_agent.models.reading import reading_of
    from vlm_agent.models.trained import trained
    from vlm_agent.training.data import chosen_episodes
    from vlm_agent.training.recipe import read_recipe
    from vlm_agent.training.trainer import NOT_FOR_MODELS

    recipe = read_recipe(trained(options.run_folder).recipe)
    where = recipe.data.shards if options.shards is None else options.shards
    if where is None:
        raise MergeError(f"{options.run_folder} drew its data; name shards to compare on with --shards")
    shards = ShardDataset(Path(where), split=recipe.data.split)
    episodes = [shards[index] for index in chosen_episodes(shards, recipe.data)[: options.samples]]

    def batches(model, tokenizer) -> list[dict]:
        reading = reading_of(model.config)
        sentences = reading.sentences(tokenizer, recipe.action_language.build())
        rows = [reading.rows([sentences.build(episode)]) for episode in episodes]
        return [{name: value for name, value in row.items() if name not in NOT_FOR_MODELS} for row in rows]

    return batches
