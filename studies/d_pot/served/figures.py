"""Figures of finished stages, and the paper's tables 1 and 3 in form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from studies.ablation.records import pruned
from studies.ablation.tables import show_rows
from studies.d_pot.served.modes import D_POT, MODES, REACT
from studies.d_pot.served.server_log import request_seconds
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.comparison.evaluated import read_metrics, read_online
from vlm_agent.evaluation.offline.baselines import constant_predictions, most_frequent_action
from vlm_agent.evaluation.offline.run import MOST_FREQUENT, NEAREST_ELEMENT
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.judged import JudgedSteps, judge_steps

SCORERS = ("official", "strict", "d_pot")
BASELINES = (MOST_FREQUENT, NEAREST_ELEMENT)
_KEPT = [(scorer, row) for scorer in SCORERS for row in ("overall", *SUBSETS, "memory_goals")] + [("cost",), ("kinds",)]

Row = Mapping[str, Any]


def offline_row(folder: Path, server_log: Path, cpu_log: Path) -> dict[str, Any]:
    """Scores, costs and answers of an evaluation; `server`: what its server logged. `cpu seconds`: of evaluation and
    server, their start included; without those of a command that was killed."""
    scores = read_metrics(folder)[AGENT]
    about, seconds = scores["about"], request_seconds(server_log)
    episodes, steps = (scores["official"]["overall"][name] for name in ("episodes", "steps"))
    return {
        "scores": pruned(scores, _KEPT),
        "episodes": episodes,
        "steps": steps,
        "answers": {
            "repaired": about.get("repaired_replies", 0),
            "unread": len(about.get("unread_steps", ())),
            "failed": len(about.get("failed_steps", ())),
            "references": about.get("references"),
        },
        "server": {"requests": len(seconds), "seconds": round(sum(seconds), 3)},
        "cpu seconds": _cpu_seconds(cpu_log),
    }


def _cpu_seconds(log: Path) -> float | None:
    """None where a kill came after the stage and before its seconds."""
    return sum(map(float, log.read_text(encoding="utf-8").split())) if log.is_file() else None


def online_row(folder: Path) -> dict[str, Any]:
    """Success of the agent and of the runs beside it, the expert among them."""
    return {name: run["overall"] for name, run in read_online(folder).items()}


def baseline_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The scores without a model, which are the same for all modes."""
    metrics = read_metrics(folder)
    kept = [*_KEPT, ("about", "gold_taps")]
    return {name: {"scores": pruned(metrics[name], kept)} for name in BASELINES if name in metrics}


def difference_to(d_pot: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """By scorer, d_pot minus the other mode in points, paired over episodes, with its 95 % interval."""
    return _difference(judge_steps(folder / "predictions.parquet", SCORERS), d_pot)


def difference_to_most_frequent(d_pot: Path, shards: Path) -> dict[str, dict[str, Any]]:
    """The same for the most frequent action of the demonstrations."""
    training = ShardDataset(shards, split="train")
    constant = most_frequent_action(read_columns(training).actions())
    predictions = read_predictions(d_pot / "predictions.parquet")
    return _difference(judge_steps(constant_predictions(predictions, constant), SCORERS), d_pot)


def _difference(other: JudgedSteps, d_pot: Path) -> dict[str, dict[str, Any]]:
    """`interval` is None where a subset has too few episodes for one."""
    found = compare(other, judge_steps(d_pot / "predictions.parquet", SCORERS), scorers=SCORERS)
    shares = {scorer: found[scorer]["overall"]["partial_match"] for scorer in SCORERS}
    return {
        scorer: {
            "difference": round(share["difference"], 2),
            "interval": share["interval"] and [round(edge, 2) for edge in share["interval"]],
        }
        for scorer, share in shares.items()
    }


def show(rows: Mapping[str, Row], baselines: Mapping[str, Row], differences: Mapping[str, Row]) -> None:
    """Tables of the modes in `rows`."""
    react = {key: rows[key] for key in (*REACT, D_POT) if key in rows}
    if react:
        show_rows(
            "Table 1 in form: earlier rounds in the prompt of ReAct", [table_1(key, row) for key, row in react.items()]
        )
    named = {MODES[key].name if key in MODES else key: row for key, row in rows.items()}
    scored = named | {name.replace("_", " "): row for name, row in baselines.items()}
    if scored:
        show_rows(
            "Table 3 in form: partial match, %; subsets by d_pot's rule", [table_3(*row) for row in scored.items()]
        )
    if named:
        show_rows("Cost of an episode, and answers", [costs(*row) for row in named.items()])
    if differences:
        show_rows(
            "d_pot minus the other, points, paired over episodes, 95 %",
            [_compared(*one) for one in differences.items()],
        )


def table_1(key: str, row: Row) -> dict[str, Any]:
    cost = row["scores"].get("cost", {})
    return {
        "history length": REACT.get(key, key),
        "accuracy, d_pot": _share(row, "d_pot"),
        "tokens an episode": _number(_total(cost), ",.0f"),
        "seconds an episode": _number(_server(row, "seconds"), ".1f"),
    }


def table_3(name: str, row: Row) -> dict[str, Any]:
    return (
        {"mode": name}
        | {scorer: _share(row, scorer) for scorer in SCORERS}
        | {subset: _share(row, "d_pot", subset) for subset in SUBSETS}
    )


def costs(name: str, row: Row) -> dict[str, Any]:
    cost, answers = row["scores"].get("cost", {}), row["answers"]
    return {
        "mode": name,
        "tokens read": _number(cost.get("tokens_read"), ",.0f"),
        "written": _number(cost.get("tokens_written"), ",.0f"),
        "calls": _number(cost.get("calls"), ".1f"),
        "seconds": _number(cost.get("seconds"), ".1f"),
        "server's requests": _number(_server(row, "requests"), ".1f"),
        "server's seconds": _number(_server(row, "seconds"), ".1f"),
        "CPU seconds": _number(None if row["cpu seconds"] is None else row["cpu seconds"] / row["episodes"], ".1f"),
        "steps": row["steps"],
        **{answer: answers[answer] for answer in ("repaired", "unread", "failed")},
    }


def online_rows(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """A line for each run, in percent and means over tasks; the runs beside the agent are those of the first mode."""
    named = {}
    for mode, runs in rows.items():
        named |= {(MODES[mode].name if run == AGENT else run): overall for run, overall in runs.items()}
    return [
        {
            "run": name,
            "success": _number(overall["success"], ".1f"),
            "interval": [round(edge, 1) for edge in overall["interval"]],
            "steps": _number(overall["steps"], ".1f"),
            **{
                title: _number(overall["cost"].get(key), ",.1f")
                for key, title in (("tokens_read", "tokens read"), ("tokens_written", "written"), ("calls", "calls"))
            },
            "seconds a step": _number(overall["cost"].get("seconds_a_step"), ".2f"),
        }
        for name, overall in named.items()
    ]


def _compared(key: str, row: Row) -> dict[str, Any]:
    name = MODES[key].name if key in MODES else key.replace("_", " ")
    return {"other": name} | {scorer: _with_interval(one) for scorer, one in row.items()}


def _with_interval(found: Row) -> str:
    interval = found["interval"]
    edges = "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"
    return f"{found['difference']:+.1f}{edges}"


def _share(row: Row, scorer: str, of: str = "overall") -> str | None:
    return _number(row["scores"].get(scorer, {}).get(of, {}).get("partial_match"), ".1f")


def _server(row: Row, name: str) -> float | None:
    """A figure of the server per episode; None where the log has no request."""
    return row["server"][name] / row["episodes"] if row["server"]["requests"] else None


def _total(cost: Row) -> float | None:
    read, written = cost.get("tokens_read"), cost.get("tokens_written")
    return None if read is None or written is None else read + written


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
