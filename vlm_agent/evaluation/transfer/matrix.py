"""The numbers of a transfer matrix: every model's scores by subset, by the same code on the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.scoring.comparison import check_same_steps
from vlm_agent.evaluation.scoring.dialects import SCORERS, describe_scorers
from vlm_agent.evaluation.scoring.judged import judge_steps
from vlm_agent.evaluation.scoring.metrics import OVERALL, score
from vlm_agent.evaluation.transfer.folders import Evaluation

SHARES = ("partial_match", "step_match")


@dataclass(frozen=True)
class TransferMatrix:
    """`rows[scorer][model][column]` holds the percent of each of `SHARES` and its 95 % interval under `intervals`.

    `columns` are the subsets with steps and then `overall`, their mean. `counts[column]` is (episodes, steps).
    """

    models: tuple[str, ...]
    columns: tuple[str, ...]
    counts: dict[str, tuple[int, int]]
    rows: dict[str, dict[str, dict[str, dict[str, Any]]]]
    scorers: dict[str, dict[str, str]]

    def as_json(self) -> dict[str, Any]:
        counts = {name: {"episodes": episodes, "steps": steps} for name, (episodes, steps) in self.counts.items()}
        return {
            "models": list(self.models),
            "columns": list(self.columns),
            "counts": counts,
            "scores": self.rows,
            "scorers": self.scorers,
        }


def transfer_matrix(evaluations: Sequence[Evaluation]) -> TransferMatrix:
    """Scores the predictions of every evaluation again, by the official, the strict and their common dialect.

    Raises DatasetError naming both folders where their gold steps differ, and naming the model where it is called like
    a published subset without a step.
    """
    scorers = tuple(dict.fromkeys((*SCORERS, evaluations[0].data["dialect"])))
    judged = [judge_steps(evaluation.predictions, scorers) for evaluation in evaluations]
    for evaluation, steps in zip(evaluations[1:], judged[1:], strict=True):
        check_same_steps(judged[0], steps, (str(evaluations[0].folder), str(evaluation.folder)))
    results = {e.name: score(steps, scorers=scorers) for e, steps in zip(evaluations, judged, strict=True)}
    first = results[evaluations[0].name]["official"]
    columns = (*first[OVERALL]["subsets"], OVERALL)
    _check_own_subsets(evaluations, columns)
    return TransferMatrix(
        models=tuple(results),
        columns=columns,
        counts={name: (first[name]["episodes"], first[name]["steps"]) for name in columns},
        rows={
            scorer: {
                model: {name: _cell(result[scorer][name]) for name in columns} for model, result in results.items()
            }
            for scorer in scorers
        },
        scorers=describe_scorers(scorers),
    )


def _check_own_subsets(evaluations: Sequence[Evaluation], columns: Sequence[str]) -> None:
    for evaluation in evaluations:
        if evaluation.name in published_subsets() and evaluation.name not in columns:
            raise DatasetError(
                f"{evaluation.folder}: the model is named {evaluation.name}, but no episode is of this subset; convert "
                "it into the shards, or rename the model with NAME=OUT"
            )


def _cell(row: dict) -> dict[str, Any]:
    return {share: row[share] for share in SHARES} | {"intervals": {share: row["intervals"][share] for share in SHARES}}
