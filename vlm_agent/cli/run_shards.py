"""The episodes that a run was trained on, for commands that check the run on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.errors import UserError

if TYPE_CHECKING:
    from vlm_agent.episodes import Episode


def run_episodes(run: Path, where: Path | None = None) -> "Iterator[Episode]":
    """The run's first episodes, from its own shards or those in `where`; each is read when it is asked for.

    Raises UserError for a run on drawn screens if `where` is None.
    """
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.models.run_layout import checked
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.training.data.stream import chosen_episodes

    data = read_recipe(checked(run).recipe).data
    folder = data.shards if where is None else where
    if folder is None:
        raise UserError(f"{run} drew its data; name shards to compare on with --shards")
    shards = ShardDataset(Path(folder), split=data.split)
    return (shards[index] for index in chosen_episodes(shards, data))
