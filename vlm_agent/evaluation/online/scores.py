"""Scores of an online evaluation, computed from the results of its tasks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean
from typing import Any

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS, wilson

OVERALL, MEMORY = "overall", "memory_goals"


def online_scores(results: Sequence[Mapping]) -> dict[str, dict]:
    """{overall, subset …, memory_goals: row} for one run; `results` are the results of `runs.play` for its tasks.

    A row holds

    - `tasks`, `successes`, `success` and `reached` (percent), `interval` (95 % Wilson interval of the success);
    - `false_completes`, the percentage of tasks that were declared complete without success, `side_effects`, of tasks
      with any, and the interval of each, `…_interval`;
    - `steps` and `expert_steps`, means over tasks, and `steps_over_expert`, all steps in successful tasks divided by
      the expert's steps in them;
    - `unparsed`, the number of answers that were not actions, and `ends`, the number of runs by reason for their end;
    - `pass_at`, omitted where a task has one sample: for 1, 2, … samples, the percentage of tasks with a success in at
      least one of as many, estimated without bias from all of them (Chen et al. 2021). Intervals count tasks, as if the
      samples of each were equal;
    - `unjudged`, the number of tasks whose judge failed, omitted if it is 0; nothing else counts them;
    - `beyond_context`, the number of answers beyond the context of the agent's model, omitted if it is 0;
    - `cost`, means over tasks: `seconds`, `seconds_a_step`, `tokens_read`, `tokens_written`, `calls`.
      A reply from disk costs what it did when it was received, so a repeated task costs as much as a new one.

    The overall row averages tasks, not subsets. Side effects and the expert's steps are those of the tasks where they
    are known. A ratio or mean without a denominator is None.
    """
    members = {OVERALL: list(results)}
    subsets = dict.fromkeys((*published_subsets(), *sorted({row["subset"] for row in results})))
    members |= {subset: [row for row in results if row["subset"] == subset] for subset in subsets}
    members |= {MEMORY: [row for row in results if row["memory"]]}
    return {name: _row(rows) for name, rows in members.items()}


def _row(of_all: list[Mapping]) -> dict:
    results = [result for result in of_all if result["success"] is not None]
    unjudged = len(of_all) - len(results)
    tasks = {result["task"].partition("#")[0] for result in results}
    pass_at, samples = _pass_at(results), len(results) / max(1, len(tasks))
    changed = [bool(one) for row in results if (one := row["side_effects"]) is not None]
    successful = [result for result in results if result["success"]]
    solved = [result for result in results if result["expert_steps"] is not None]
    compared = [result for result in solved if result["success"]]
    expert_steps = sum(result["expert_steps"] for result in compared)
    beyond = sum(result["beyond_context"] for result in results)
    return {
        "tasks": len(results),
        "successes": len(successful),
        **_rate("success", [result["success"] for result in results], samples),
        **_rate("false_completes", [result["false_complete"] for result in results], samples),
        **_rate("side_effects", changed, samples),
        "reached": _mean([100.0 * result["reached"] for result in results]),
        "steps": _mean([result["steps"] for result in results]),
        "expert_steps": _mean([result["expert_steps"] for result in solved]),
        "steps_over_expert": sum(result["steps"] for result in compared) / expert_steps if compared else None,
        "unparsed": sum(result["unparsed"] for result in results),
        "ends": dict(sorted(Counter(result["reason"] for result in results).items())),
        "cost": _cost(results),
        **({"pass_at": pass_at} if len(pass_at) > 1 else {}),
        **({"unjudged": unjudged} if unjudged else {}),
        **({"beyond_context": beyond} if beyond else {}),
    }


def _rate(name: str, those: Sequence[bool], samples: float) -> dict[str, Any]:
    interval = wilson(sum(those) / samples, len(those) / samples) if those else None
    return {name: _mean([100.0 * one for one in those]), SHARES_OF_TASKS[name]: interval}


def _pass_at(results: list[Mapping]) -> list[float]:
    of_task: dict[str, list[bool]] = {}
    for result in results:
        of_task.setdefault(result["task"].partition("#")[0], []).append(result["success"])
    failures = [(len(those), len(those) - sum(those)) for those in of_task.values()]
    most = min((samples for samples, _ in failures), default=0)
    return [100 * fmean(1 - comb(failed, k) / comb(n, k) for n, failed in failures) for k in range(1, most + 1)]


def _cost(results: list[Mapping]) -> dict[str, float | None]:
    seconds = [sum(result["seconds"].values()) for result in results]
    steps = sum(result["steps"] for result in results)
    tokens = [result["tokens"] for result in results]
    calls = [result["calls"] for result in results]
    return {
        "seconds": _mean(seconds),
        "seconds_a_step": sum(seconds) / steps if steps else None,
        "tokens_read": None if None in tokens else _mean([read for read, _ in tokens]),
        "tokens_written": None if None in tokens else _mean([written for _, written in tokens]),
        "calls": None if None in calls else _mean([count for count in calls if count is not None]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
