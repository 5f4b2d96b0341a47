"""How many of the scored episodes the agent's model was trained on: a score on them does not measure generalisation."""

from collections.abc import Iterable
from typing import Any

from vlm_agent.agents import AgentSettings

LISTED = 20
"""Ids of such episodes in metrics.json; all are counted."""


def trained_on(settings: AgentSettings, scored: Iterable[str]) -> dict[str, Any]:
    """`count`: of the episodes with the ids `scored`, those that the model was trained on; `first`: some of their ids;
    `unknown`: why there may be more. {} for an agent without a run."""
    run = settings.learned_by
    if run is None:
        return {}
    from vlm_agent.models.weights.origin import LEARNED_FILE, read_learned

    learned = read_learned(run)
    if learned is None:
        return {"unknown": f"the run has no {LEARNED_FILE}, which earlier versions did not write"}
    found = sorted(set(learned.ids) & set(scored))
    counted: dict[str, Any] = {"count": len(found)} | ({"first": found[:LISTED]} if found else {})
    if learned.unknown_base is not None:
        counted["unknown"] = f"the episodes of its base {learned.unknown_base} are not recorded"
    return counted


def trained_on_fact(counted: dict[str, Any], episodes: int) -> dict[str, str]:
    """The line for terminal, report and card, of the result of `trained_on` and the number of scored episodes."""
    if not counted:
        return {}
    known = f"{counted['count']:,} of {episodes:,}" if "count" in counted else ""
    unknown = f"unknown: {counted['unknown']}" if "unknown" in counted else ""
    return {"scored episodes that the run was trained on": "; others ".join(filter(None, [known, unknown]))}
