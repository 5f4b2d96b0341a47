"""Texts that `data.coat` and `data.plan` need, and that steps lack: an error before training."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences.thoughts.plans import written
from vlm_agent.texts.lines import one_line


def needed_texts(data: DataRecipe) -> list[tuple[str, str]]:
    """(section, part) of each text that may not be missing."""
    coat, plan = data.coat, data.plan
    found = [("coat", part) for part in (*coat.read, *coat.learned)] if coat.missing == "error" else []
    return found + ([("plan", part) for part in (*plan.read, *plan.learned)] if plan.missing == "error" else [])


def missing_texts(episode: Episode, data: DataRecipe) -> list[int]:
    """For each step the texts that it lacks: bit k is that of `needed_texts(data)[k]`."""
    needed, last = needed_texts(data), len(episode) - 1
    return [
        sum(_lacks(step, number, last, *text, data) << bit for bit, text in enumerate(needed))
        for number, step in enumerate(episode.steps)
    ]


def _lacks(step: Step, number: int, last: int, section: str, part: str, data: DataRecipe) -> bool:
    if section == "coat":
        # No step reads the result of the last action.
        return not (part == "result" and number == last) and not one_line(step.notes.get(part, ""))
    is_static = part == "plan" and data.plan.is_static and data.control != "no_history"
    return not (is_static and number) and not written(part, step.notes.get(part, ""))


def check_texts(missing: np.ndarray, steps: np.ndarray, shards: ShardDataset, data: DataRecipe) -> None:
    """Raises RecipeError that names the first step without a text. `missing`: int64 (S,), from `missing_texts`.
    `steps`: the rows of the same steps, with `episode` and `number`."""
    for bit, (section, part) in enumerate(needed_texts(data)):
        lacking = np.flatnonzero(missing >> bit & 1)
        if not len(lacking):
            continue
        first = steps[lacking[0]]
        where = f"episode {shards.ids[int(first['episode'])]} step {int(first['number'])}"
        share = _share(lacking, steps, shards.directory)
        if section == "coat":
            raise RecipeError(
                f"{where} has no note {part!r}, which data.coat.{part} needs ({share} lack it); choose shards of a "
                f"source with these texts, such as AitZ, set data.coat.{part} to false, or data.coat.missing to empty"
            )
        raise RecipeError(
            f"{where} has no {part} of a planner, which data.plan.{part}: {data.plan.how(part)} needs ({share} "
            "lack it); write plans with `vlm-agent annotate --texts plan` or `vlm-agent simulate --thoughts`, set "
            f"data.plan.{part} to off, or data.plan.missing to empty"
        )


def _share(lacking: Sequence[int] | np.ndarray, steps: np.ndarray, directory: Path) -> str:
    return f"{len(lacking):,} of {len(steps):,} steps in {directory}"
