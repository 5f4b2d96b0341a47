"""What the answers of a run cost an episode: tokens, calls and seconds (table 1 of D-PoT), from its predictions."""

from pathlib import Path

import numpy as np

from vlm_agent.evaluation.predictions import open_predictions

COST_FORMS = {"tokens_read": ",.0f", "tokens_written": ",.0f", "calls": ",.1f", "seconds": ",.1f"}
"""Each cost, and its format in tables."""


def cost_per_episode(predictions: Path) -> dict[str, float | None]:
    """Each of `COST_FORMS`: the mean over episodes of the sum over an episode's steps; empty if the agent reports none.

    An episode with a step whose cost is unknown, such as one whose call failed, is left out of that mean. None if no
    episode is left.
    """
    with open_predictions(predictions) as file:
        table = file.read(["episode_id", *COST_FORMS])
    episode = table["episode_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    costs = {name: _mean(episode, table[name].to_numpy()) for name in COST_FORMS}
    return {} if all(value is None for value in costs.values()) else costs


def _mean(episode: np.ndarray, values: np.ndarray) -> float | None:
    """`values`: of each step, NaN or None where unknown."""
    totals = np.bincount(episode, weights=values.astype(np.float64))
    whole = totals[~np.isnan(totals)]
    return float(whole.mean()) if len(whole) else None
