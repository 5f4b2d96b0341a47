"""The numbers of an online evaluation, from its tasks' results alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from vlm_agent.episodes import SUBSETS
from vlm_agent.evaluation.shares import wilson

OVERALL, MEMORY = "overall", "memory_goals"


def online_scores(results: Sequence[Mapping]) -> dict[str, dict]:
    """{overall, subset …, memory_goals: row} of what `runs.play` returned for each task of one run.

    A row holds `tasks`, `successes`, `success` and `reached` (percent), `interval` (95 %, Wilson, of the success);
    `steps` and `expert_steps`, means over the tasks; `steps_over_expert`, all steps over all of the expert's in the
    tasks that succeeded; `unparsed`, answers that were no action; `ends`, why runs ended; `cost`, means over the
    tasks: `seconds`, `seconds_a_step`, `tokens_read`, `tokens_said`. Overall is over tasks, not over subsets. A share
    or mean of nothing is None.
    """
    members: dict[str, Callable[[Mapping], bool]] = {OVERALL: lambda _: True}
    members |= {subset: lambda row, subset=subset: row["subset"] == subset for subset in SUBSETS}
    members |= {MEMORY: lambda row: row["memory"]}
    return {name: _row([result for result in results if belongs(result)]) for name, belongs in members.items()}


def _row(results: list[Mapping]) -> dict:
    won = [result for result in results if result["success"]]
    experts = sum(result["expert_steps"] for result in won)
    return {
        "tasks": len(results),
        "successes": len(won),
        "success": _mean([100.0 * result["success"] for result in results]),
        "interval": wilson(len(won), len(results)),
        "reached": _mean([100.0 * result["reached"] for result in results]),
        "steps": _mean([result["steps"] for result in results]),
        "expert_steps": _mean([result["expert_steps"] for result in results]),
        "steps_over_expert": sum(result["steps"] for result in won) / experts if won else None,
        "unparsed": sum(result["unparsed"] for result in results),
        "ends": dict(sorted(Counter(result["reason"] for result in results).items())),
        "cost": _cost(results),
    }


def _cost(results: list[Mapping]) -> dict[str, float | None]:
    seconds = [sum(result["seconds"].values()) for result in results]
    steps = sum(result["steps"] for result in results)
    tokens = [result["tokens"] for result in results]
    known = None not in tokens
    return {
        "seconds": _mean(seconds),
        "seconds_a_step": sum(seconds) / steps if steps else None,
        "tokens_read": _mean([read for read, _ in tokens]) if known else None,
        "tokens_said": _mean([said for _, said in tokens]) if known else None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
