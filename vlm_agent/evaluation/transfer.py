"""Transfer: models that were trained on different data, each scored on every subset of the same episodes.

Auto-UI's figure 5 (Zhang and Zhang 2023) is such a matrix: a model for each subset of AITW, by the five subsets. It is
shown as a table of the terminal, as JSON and as a page with a heat map of each scorer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.offline.plan import job
from vlm_agent.evaluation.report.page import make_environment, page_style
from vlm_agent.evaluation.scoring.comparison import in_same_order
from vlm_agent.evaluation.scoring.dialects import SCORERS, describe_scorers
from vlm_agent.evaluation.scoring.judged import judge_steps
from vlm_agent.evaluation.scoring.metrics import OVERALL, score
from vlm_agent.files import atomic_write, write_json
from vlm_agent.files.console import new_table

_SAME = ("shards", "split", "limit", "draw", "dialect")
"""Settings that decide the episodes and the scorers; `shards` is the digest of their manifest, `draw` that of the
benchmark (None without one)."""


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation. `data` holds the settings of `_SAME`, `agent` the identity of agent and language."""

    name: str
    folder: Path
    agent: dict[str, Any]
    data: dict[str, Any]

    @property
    def predictions(self) -> Path:
        return self.folder / "predictions.parquet"


def read_evaluations(folders: Mapping[str, Path]) -> list[Evaluation]:
    """The evaluations by name, those named like a published subset first, in the order of the subsets.

    Raises DatasetError naming the folder where one is not a finished evaluation, where two hold the same agent, and
    where shards, split, limit, draw or dialect differ from those of the first. The shards need not be on this machine.
    """
    evaluations = [_read(name, folder) for name, folder in folders.items()]
    if len(evaluations) < 2:
        raise DatasetError("transfer compares at least two evaluations; name the folder of each model")
    _check_same_data(evaluations)
    _check_different_agents(evaluations)
    order = {subset: number for number, subset in enumerate(published_subsets())}
    return sorted(evaluations, key=lambda evaluation: order.get(evaluation.name, len(order)))


def _read(name: str, folder: Path) -> Evaluation:
    plan = job(folder).read_plan()
    with job(folder).parsing_plan():
        identity, settings = plan["described"], plan["given"]
        is_finished = AGENT in identity["runs"] and (folder / "metrics.json").is_file()
        data = {key: identity.get(key, settings.get(key)) for key in _SAME}
        found = Evaluation(name, folder, {key: identity[key] for key in ("agent", "language")}, data)
    if not is_finished:
        raise DatasetError(f"{folder} is not a finished evaluation; run the same evaluate command again to complete it")
    return found


def _check_same_data(evaluations: Sequence[Evaluation]) -> None:
    first = evaluations[0]
    for other in evaluations[1:]:
        for key in _SAME:
            if first.data[key] != other.data[key]:
                values = "" if key == "shards" else f" ({first.data[key]!r} and {other.data[key]!r})"
                raise DatasetError(
                    f"{first.folder} and {other.folder} have a different {key}{values}; "
                    "evaluate all models with the same --shards and --benchmark"
                )


def _check_different_agents(evaluations: Sequence[Evaluation]) -> None:
    for other, evaluation in combinations(evaluations, 2):
        if other.agent == evaluation.agent:
            raise DatasetError(
                f"{other.folder} and {evaluation.folder} are evaluations of the same model; name each model once"
            )


SHARES = ("partial_match", "step_match")


@dataclass(frozen=True)
class TransferMatrix:
    """`scores[scorer][model][column]` holds the percent of each of `SHARES` and its 95 % interval under `intervals`.

    `columns` are the subsets with steps and then `overall`, their mean. `counts[column]` holds the number of `episodes`
    and of `steps`. The fields are those of `transfer.json`.
    """

    models: tuple[str, ...]
    columns: tuple[str, ...]
    counts: dict[str, dict[str, int]]
    scores: dict[str, dict[str, dict[str, dict[str, Any]]]]
    scorers: dict[str, dict[str, str]]


def transfer_matrix(evaluations: Sequence[Evaluation]) -> TransferMatrix:
    """Scores the predictions of every evaluation again, by the official, the strict and their common dialect.

    Raises DatasetError naming both folders where their gold steps differ, and naming the model where it is called like
    a published subset without a step.
    """
    scorers = tuple(dict.fromkeys((*SCORERS, evaluations[0].data["dialect"])))
    judged = [judge_steps(evaluation.predictions, scorers) for evaluation in evaluations]
    for evaluation, steps in zip(evaluations[1:], judged[1:], strict=True):
        in_same_order(judged[0], steps, (str(evaluations[0].folder), str(evaluation.folder)))
    results = {e.name: score(steps, scorers=scorers) for e, steps in zip(evaluations, judged, strict=True)}
    first = results[evaluations[0].name]["official"]
    columns = (*first[OVERALL]["subsets"], OVERALL)
    _check_own_subsets(evaluations, columns)
    return TransferMatrix(
        models=tuple(results),
        columns=columns,
        counts={name: {what: first[name][what] for what in ("episodes", "steps")} for name in columns},
        scores={
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


JSON, PAGE = "transfer.json", "transfer.html"

_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _TOP = 104, 52, 168, 30
_DARKEST = 0.75
"""Opacity of 100 %: the number must stay legible."""


def transfer_table(matrix: TransferMatrix) -> Table:
    """A row for each model: official partial match in percent, its 95 % interval, and the strict one below."""
    columns = ["trained on", *(name.replace("_", "\n") for name in matrix.columns)]
    table = new_table("Transfer: partial match by subset, %: official [95 % interval], strict below", columns)
    for model in matrix.models:
        cells = [
            Text("\n").join(_numbers(matrix.scores[scorer][model][name]) for scorer in ("official", "strict"))
            for name in matrix.columns
        ]
        table.add_row(Text(model.replace("_", " ")), *cells)
    return table


def write_transfer(output: Path, matrix: TransferMatrix, facts: Mapping[str, str]) -> None:
    """Writes `transfer.json` and `transfer.html` to `output`. The page loads nothing and escapes every name."""
    output.mkdir(parents=True, exist_ok=True)
    template = make_environment().get_template("transfer.html.jinja")
    maps = {scorer: _heat_map(matrix, scorer) for scorer in matrix.scorers}
    page = template.render(facts=facts, matrix=matrix, style=page_style(), maps=maps)
    with atomic_write(output / PAGE) as part:
        part.write_text(page, encoding="utf-8")
    write_json(output / JSON, {"facts": dict(facts), **asdict(matrix)})


def _numbers(cell: Mapping[str, Any]) -> Text:
    value, interval = cell["partial_match"], cell["intervals"]["partial_match"]
    if value is None:
        return Text("–")
    shown = "" if interval is None else f" {interval[0]:.0f}–{interval[1]:.0f}"
    return Text(f"{value:.1f}").append(shown, "dim")


def _heat_map(matrix: TransferMatrix, scorer: str) -> dict[str, Any]:
    """Positions and texts of an SVG. A model's own subset, the diagonal, has a border."""
    cells = []
    for row, model in enumerate(matrix.models):
        for column, name in enumerate(matrix.columns):
            cell = matrix.scores[scorer][model][name]
            value = cell["partial_match"]
            cells.append(
                {
                    "x": _LEFT + column * _CELL_WIDTH,
                    "y": _TOP + row * _CELL_HEIGHT,
                    "value": value,
                    "interval": cell["intervals"]["partial_match"],
                    "opacity": 0 if value is None else round(value / 100 * _DARKEST, 3),
                    "model": model,
                    "column": name,
                    "own": model == name,
                }
            )
    return {
        "cells": cells,
        "cell": (_CELL_WIDTH, _CELL_HEIGHT),
        "left": _LEFT,
        "size": (_LEFT + len(matrix.columns) * _CELL_WIDTH + 2, _TOP + len(matrix.models) * _CELL_HEIGHT + 2),
        "columns": [(_LEFT + (n + 0.5) * _CELL_WIDTH, name) for n, name in enumerate(matrix.columns)],
        "rows": [(_TOP + (n + 0.5) * _CELL_HEIGHT, name) for n, name in enumerate(matrix.models)],
    }
