"""A transfer matrix as a table of the terminal, as JSON and as a page with a heat map of each scorer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from vlm_agent.evaluation.report.page import make_environment, page_style
from vlm_agent.evaluation.transfer.matrix import TransferMatrix
from vlm_agent.files import atomic_write, write_json
from vlm_agent.files.console import new_table

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
            Text("\n").join(_numbers(matrix.rows[scorer][model][name]) for scorer in ("official", "strict"))
            for name in matrix.columns
        ]
        table.add_row(Text(model.replace("_", " ")), *cells)
    return table


def write_transfer(output: Path, matrix: TransferMatrix, facts: Mapping[str, str]) -> None:
    """Writes `transfer.json` and `transfer.html` to `output`. The page loads nothing and escapes every name."""
    output.mkdir(parents=True, exist_ok=True)
    page = (
        make_environment()
        .get_template("transfer.html.jinja")
        .render(
            facts=facts,
            matrix=matrix,
            style=page_style(),
            maps={scorer: _heat_map(matrix, scorer) for scorer in matrix.scorers},
        )
    )
    with atomic_write(output / PAGE) as part:
        part.write_text(page, encoding="utf-8")
    write_json(output / JSON, {"facts": dict(facts), **matrix.as_json()})


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
            cell = matrix.rows[scorer][model][name]
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
