"""The numbers of a comparison, from the folders of its stages: rows, paired differences, and screens that divide."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.comparison import evaluated
from vlm_agent.evaluation.comparison.settings import SERVED, Contestant
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, TRAIN, Stages, name_of
from vlm_agent.evaluation.offline.plan import TEXTS
from vlm_agent.evaluation.offline.run import CEILING, MOST_FREQUENT
from vlm_agent.evaluation.online.evaluate import EXPERT
from vlm_agent.evaluation.scoring.comparison import compare as compare_runs
from vlm_agent.evaluation.scoring.dialects import SCORERS
from vlm_agent.evaluation.scoring.judged import JudgedSteps, judge_steps
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS, paired_proportions
from vlm_agent.files.pages import words

DIVIDING = 24
"""Screens on the page."""

_SEED = 0

COMPLETE, SUCCESS = "complete match", "success"
ONLINE_FIGURES = tuple(map(words, SHARES_OF_TASKS))


def results_of(
    stages: Stages, ran: Mapping[str, Mapping[str, Any]], failed: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    """The content of `comparison.json`.

    `figures`: names of those in the table, in percent: scorers of the benchmark, complete match by the official one,
    tasks. `agents`: by key, who it is, the `origin` of its settings with their `overrides`, and its `rows`
    by seed: `figures` and `intervals` in percent, `controls`, `costs`, the data that the model was `trained on`, with
    which `hardware` and commit, and where the `texts` come from that it reads offline. `baselines`: figures without a
    model. `pairs`: differences of every two agents with the same seed by each scorer, with 95 % intervals of a
    bootstrap over episodes, for success of paired proportions. `dividing`: steps about which most agents disagree, with
    the verdicts; steps count from 0.
    """
    agents = {key: _agent(stages, key, agent, ran, failed) for key, agent in stages.comparison.agents.items()}
    finished = {
        (key, int(seed)): stages.layout.of(OFFLINE, key, int(seed))
        for key, about in agents.items()
        for seed in about["rows"]
    }
    metrics = [evaluated.read_metrics(folder)[AGENT] for folder in finished.values()]
    scorers = list(dict.fromkeys(name for scores in metrics for name in scores.get("scorers", SCORERS)))
    judged = {owner: judge_steps(folder / "predictions.parquet", scorers) for owner, folder in finished.items()}
    return {
        "name": stages.comparison.name,
        "about": stages.comparison.about,
        "figures": [*scorers, COMPLETE, *(ONLINE_FIGURES if stages.sizes.tasks else ())],
        "facts": _facts(stages, metrics),
        "agents": agents,
        "baselines": _baselines(stages, finished),
        "pairs": list(_pairs(stages, judged, scorers)),
        "dividing": dividing_steps(
            {key: judged[key, int(next(iter(about["rows"])))] for key, about in agents.items() if about["rows"]}
        ),
        "stages": dict(ran),
    }


def _facts(stages: Stages, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    benchmark = stages.layout.benchmark(stages.comparison)
    facts = ({} if benchmark is None else {"benchmark": str(benchmark)}) | {
        "shards": str(stages.layout.shards),
        "seeds": stages.comparison.seeds,
        "tasks": stages.sizes.tasks,
    }
    if not metrics:
        return facts
    overall = metrics[0]["official"]["overall"]
    return facts | {"split": metrics[0]["about"]["split"], "episodes": overall["episodes"], "steps": overall["steps"]}


def _agent(
    stages: Stages,
    key: str,
    agent: Contestant,
    ran: Mapping[str, Mapping[str, Any]],
    failed: Mapping[tuple[str, int], str],
) -> dict[str, Any]:
    seeds = stages.seeds_of(agent)
    finished = [seed for seed in seeds if (key, seed) not in failed]
    return {
        "name": agent.name,
        "paper": agent.paper,
        "block": block_of(stages, key, agent, finished),
        "origin": str(agent.run or agent.recipe or agent.agent),
        "overrides": dict(agent.overrides),
        "note": agent.note,
        "scale": agent.scale,
        "failed": {str(seed): failed[key, seed] for seed in seeds if (key, seed) in failed},
        "rows": {str(seed): _row(stages, key, agent, seed, ran) for seed in finished},
    }


def block_of(stages: Stages, key: str, agent: Contestant, finished: list[int]) -> str:
    """The block of its row: `trained` on the comparison's shards, `elsewhere` (a run of other data), `prompted`."""
    if agent.is_prompted:
        return "prompted"
    if agent.run is None or not finished:
        return "trained"
    _, shards = evaluated.read_data(stages.layout.run(key, agent, finished[0]))
    here = {manifest_digest(folder) for folder in {stages.layout.shards, stages.layout.shards_at(agent.scale)}}
    return "trained" if shards in here else "elsewhere"


def _row(
    stages: Stages, key: str, agent: Contestant, seed: int, ran: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    metrics = evaluated.read_metrics(stages.layout.of(OFFLINE, key, seed))
    online = (
        evaluated.read_online(stages.layout.of(ONLINE, key, seed))[AGENT]["overall"] if stages.sizes.tasks else None
    )
    steps, tasks = _figures(metrics[AGENT]), _online_figures(online)
    training = ran.get(name_of(TRAIN, SERVED if agent.served else key, seed), {})
    run = _run(stages, key, agent, seed)
    recorded = None if run is None else evaluated.read_seconds(run)
    return {
        "figures": steps["figures"] | tasks["figures"],
        "intervals": steps["intervals"] | tasks["intervals"],
        "controls": {
            name: _figures(scores) for name, scores in metrics.items() if name not in (AGENT, MOST_FREQUENT, CEILING)
        },
        "costs": _costs(metrics[AGENT], online)
        | {
            "peak memory, GB": ran.get(name_of(OFFLINE, key, seed), {}).get("peak_gb"),
            "parameters": None if run is None else evaluated.read_parameters(run),
            # Those of the stage include the start of its process.
            "training, s": training.get("seconds") if recorded is None else recorded,
        },
        "trained on": "" if run is None else evaluated.read_data(run)[0],
        "hardware": "" if run is None else evaluated.read_origin(run),
        "texts": metrics[AGENT]["about"].get(TEXTS, {}),
    }


def _figures(scores: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    places = {scorer: (scores[scorer]["overall"], "partial_match") for scorer in scores.get("scorers", SCORERS)}
    places[COMPLETE] = scores["official"]["overall"], "complete_match"
    return {
        "figures": {name: row[share] for name, (row, share) in places.items()},
        "intervals": {name: row.get("intervals", {}).get(share) for name, (row, share) in places.items()},
    }


def _online_figures(overall: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    if overall is None:
        return {"figures": {}, "intervals": {}}
    return {
        "figures": {words(rate): overall[rate] for rate in SHARES_OF_TASKS},
        "intervals": {words(rate): overall[interval] for rate, interval in SHARES_OF_TASKS.items()},
    }


def _costs(scores: Mapping[str, Any], online: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The costs of a step: seconds as on a phone, one step after the other; tokens and calls as on recorded
    episodes."""
    recorded = scores.get("cost_a_step", {})
    return {
        "seconds a step": None if online is None else online["cost"]["seconds_a_step"],
        "tokens read": recorded.get("tokens_read"),
        "tokens written": recorded.get("tokens_written"),
        "calls": recorded.get("calls"),
    }


def _run(stages: Stages, key: str, agent: Contestant, seed: int) -> Path | None:
    """The run whose model answers; None for a model on the user's server."""
    if agent.is_prompted and not (agent.served and stages.is_served_here):
        return None
    return stages.layout.of("runs", SERVED, seed) if agent.is_prompted else stages.layout.run(key, agent, seed)


def _baselines(stages: Stages, finished: Mapping[tuple[str, int], Path]) -> dict[str, Any]:
    """Scores without a model, which are the same for all agents; the expert does the online tasks."""
    for (key, seed), folder in finished.items():
        metrics = evaluated.read_metrics(folder)
        rows = {name: _figures(metrics[name]) for name in (MOST_FREQUENT, CEILING) if name in metrics}
        online = evaluated.read_online(stages.layout.of(ONLINE, key, seed)) if stages.sizes.tasks else {}
        for name in sorted(online.keys() - {AGENT}, key=lambda one: one != EXPERT):
            rows[name] = _online_figures(online[name]["overall"])
        return rows
    return {}


def _pairs(
    stages: Stages, judged: Mapping[tuple[str, int], JudgedSteps], scorers: Sequence[str] = SCORERS
) -> Iterator[dict[str, Any]]:
    """Differences second - first in points, of agents with the same seed; agents with one seed pair with all seeds."""
    played = judged if stages.sizes.tasks else ()
    successes = {owner: evaluated.read_successes(stages.layout.of(ONLINE, *owner)) for owner in played}
    for first, second in combinations(stages.comparison.agents, 2):
        seeds = {key: stages.seeds_of(stages.comparison.agents[key]) for key in (first, second)}
        for seed in max(seeds.values(), key=len):
            owners = [(key, seed if len(known) > 1 else known[0]) for key, known in seeds.items()]
            if not judged.keys() >= set(owners):
                continue
            found = compare_runs(judged[owners[0]], judged[owners[1]], scorers=scorers)
            steps = {scorer: found[scorer]["overall"]["partial_match"] for scorer in scorers}
            yield {
                "first": first,
                "second": second,
                "seed": seed,
                **{scorer: {name: row[name] for name in ("difference", "interval")} for scorer, row in steps.items()},
                **({SUCCESS: _success(successes[owners[0]], successes[owners[1]])} if successes else {}),
            }


def _success(one: Mapping[str, bool], other: Mapping[str, bool]) -> dict[str, Any]:
    """`tasks`: those judged for both agents; `gained`: the second alone completes them; `lost`: the first alone."""
    tasks = one.keys() & other.keys()
    gained, lost = (sum(a[task] > b[task] for task in tasks) for a, b in ((other, one), (one, other)))
    interval = paired_proportions(gained, lost, len(tasks))
    difference = 100 * (gained - lost) / len(tasks) if tasks else None
    return dict(difference=difference, interval=interval, gained=gained, lost=lost, tasks=len(tasks))


def dividing_steps(judged: Mapping[str, JudgedSteps], count: int = DIVIDING) -> list[dict[str, Any]]:
    """The steps about which agents disagree most by the strict scorer: those that nearest to half of the agents get
    right. Further steps of an episode come after one of each episode. Among equals they are drawn at random, by a fixed
    seed."""
    if len(judged) < 2:
        return []
    first = next(iter(judged.values()))
    rows = [
        (str(first.episode_ids[episode]), int(step)) for episode, step in zip(first.episode, first.step, strict=True)
    ]
    right = np.array([[bool(steps.right["strict"][steps.row_of(*row)]) for row in rows] for steps in judged.values()])
    split = np.minimum(right.sum(axis=0), len(judged) - right.sum(axis=0))
    drawn = np.random.default_rng(_SEED).permutation(len(rows))
    in_file_order = sorted(range(len(rows)), key=rows.__getitem__)  # the draw does not depend on the file's order
    order = sorted((in_file_order[place] for place in drawn), key=lambda row: -split[row])
    dividing = [row for row in order if split[row]]
    best = {rows[row][0]: row for row in reversed(dividing)}
    chosen = sorted(dividing, key=lambda row: best[rows[row][0]] != row)[:count]
    return [
        {
            "episode": rows[row][0],
            "step": rows[row][1],
            "right": {key: bool(right[number, row]) for number, key in enumerate(judged)},
        }
        for row in chosen
    ]
