"""The lines of `data.plan` at each step of a run, and their tokens, from columns alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.shards.columns import Columns, note_texts
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.plan import PARTS
from vlm_agent.sentences.thoughts import PlanLines
from vlm_agent.sentences.thoughts.plans import read_line, written
from vlm_agent.training.data.thoughts.columns import where_missing

_CURRENT, _BOTH, _WORDS = "current", "both", "words"


def plan_lines(
    dataset: ShardDataset,
    episodes: Sequence[int] | None,
    columns: Columns,
    lines: PlanLines,
    control: str | None,
) -> dict[tuple[str, str, str], np.ndarray]:
    """str objects (S,), the line that each step has, empty for none, by (where, `given` or `learned`, part).

    Where: `current`, at the step that is answered alone; `both`, also where the step is shown as an earlier one;
    `words`, where it is an earlier step in words, unless its action is. A static plan is `given` at later steps.

    `episodes`: numbers in ascending order; None: all. `control`: `data.control`. Raises RecipeError for a text that is
    missing, unless `missing` is `empty`.
    """
    texts, parts = note_texts(dataset, PARTS, episodes), lines.parts
    steps = int(columns.lengths.sum())
    first = np.cumsum(columns.lengths) - columns.lengths
    first_of = np.repeat(first, columns.lengths)  # the first step of each step's episode
    if control == "no_history":
        first_of = np.arange(steps)
    is_first = first_of == np.arange(steps)
    if parts.missing == "error":
        _check(texts, is_first, columns.lengths, lines, dataset, episodes)
    found: dict[tuple[str, str, str], list[str]] = {}
    for part in parts.read:
        where = _CURRENT if part == "plan" else _BOTH
        found[where, "given", part] = [read_line(part, written(part, each)) for each in texts[part]]
    for part in parts.learned:
        at = [lines.at(one) for one in is_first.tolist()] if part == "plan" else [lines] * steps
        where = _CURRENT if part == "plan" else _BOTH
        found[where, "learned", part] = [
            f"{written(part, each)}\n" if part in own.parts.learned else ""
            for own, each in zip(at, texts[part], strict=True)
        ]
    if parts.is_static:
        found[_CURRENT, "given", "plan"] = [
            "" if one else read_line("plan", written("plan", texts["plan"][number]))
            for one, number in zip(is_first.tolist(), first_of.tolist(), strict=True)
        ]
    words = [lines.in_words({"step": each}) for each in texts["step"]]
    found[_WORDS, "given", "step"] = [f"{line}\n" if line else "" for line in words]
    return {key: np.array(of_steps, object) for key, of_steps in found.items()}


def _check(
    texts: Mapping[str, np.ndarray],
    is_first: np.ndarray,
    lengths: np.ndarray,
    lines: PlanLines,
    dataset: ShardDataset,
    episodes: Sequence[int] | None,
) -> None:
    for part in (*lines.parts.read, *lines.parts.learned):
        missing = np.array([not written(part, each) for each in texts[part]], bool)
        if part == "plan" and lines.parts.is_static:
            missing &= is_first
        if missing.any():
            first, share = where_missing(missing, lengths, dataset, episodes)
            raise RecipeError(
                f"{first} has no {part} of a planner, which data.plan.{part}: {lines.parts.how(part)} needs ({share} "
                "lack it); write plans with `vlm-agent annotate --texts plan` or `vlm-agent simulate --thoughts`, set "
                f"data.plan.{part} to off, or data.plan.missing to empty"
            )


@dataclass(frozen=True)
class PlanTokens:
    """int64 (S,) each. `current`: tokens that only the step that is answered has. `both`: those that it also has as an
    earlier step with its screen. `learned`: the supervised ones of both. `words`: tokens of its line as a step in
    words, 0 where its action stands for it."""

    current: np.ndarray
    both: np.ndarray
    learned: np.ndarray
    words: np.ndarray


def count_plans(
    lines: Mapping[tuple[str, str, str], np.ndarray], steps: int, measure: Callable[[np.ndarray], np.ndarray]
) -> PlanTokens:
    """`lines`: of `plan_lines`. `measure`: tokens int64 (S,) of texts (S,)."""
    counts = {where: np.zeros(steps, np.int64) for where in (_CURRENT, _BOTH, _WORDS)}
    learned = np.zeros(steps, np.int64)
    for (where, how, _), texts in lines.items():
        tokens = measure(texts)
        counts[where] += tokens
        learned += tokens if how == "learned" else 0
    return PlanTokens(counts[_CURRENT], counts[_BOTH], learned, counts[_WORDS])
