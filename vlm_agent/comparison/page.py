"""The table of a comparison at the terminal, and `comparison.html`: one self-contained file that loads nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.text import Text

from vlm_agent.comparison.results import FIGURES
from vlm_agent.comparison.stages import OFFLINE
from vlm_agent.console import new_table
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.drawing.actions import describe
from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.report.gallery import rows_by_id, thumbnail
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH, Mark, marks
from vlm_agent.evaluation.report.page import page_style
from vlm_agent.files import atomic_write
from vlm_agent.pages import page_environment

_WIDTH = 240
"""Of a picture, in pixels."""

_WORDS = 90
_COST_FORMS = {
    "seconds a step": ",.2f",
    "tokens read": ",.0f",
    "tokens written": ",.0f",
    "calls": ",.1f",
    "peak memory, GB": ",.1f",
    "parameters": ",.0f",
    "training, s": ",.0f",
}
_BLOCKS = {
    "trained": "Trained on the demonstrations",
    "prompted": "Prompted: the model sees prompts of the paper's kind",
}

Cell = Mapping[str, Any]
"""`value`, `low`, `high`: the mean over seeds with the lowest and highest one; of one seed with its 95 % interval."""


@dataclass(frozen=True)
class Row:
    """A line of the table. `label`: of an agent, or of its control. `kind`: what its evaluation calls the agent."""

    label: str
    figures: Mapping[str, Cell]
    costs: Mapping[str, str]
    agent: Mapping[str, Any] | None = None
    kind: str = ""


def rows_of(content: Mapping[str, Any], block: str) -> Iterator[Row]:
    """The agents of a block that have a result, each followed by its controls."""
    for about in content["agents"].values():
        rows = list(about["rows"].values())
        if about["block"] != block or not rows:
            continue
        costs = {name: _mean([row["costs"].get(name) for row in rows], form) for name, form in _COST_FORMS.items()}
        yield Row(about["name"], _cells(rows), costs, about, about["kind"])
        for name in rows[0]["controls"]:
            yield Row(
                name.replace("_", " "), _cells([row["controls"][name] for row in rows if name in row["controls"]]), {}
            )


def baseline_rows(content: Mapping[str, Any]) -> Iterator[Row]:
    for name, row in content["baselines"].items():
        yield Row(name.replace("_", " "), _cells([row]), {})


def _cells(rows: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    return {name: _cell(rows, name) for name in FIGURES}


def _cell(rows: Sequence[Mapping[str, Any]], name: str) -> Cell:
    values = [value for row in rows if (value := row["figures"].get(name)) is not None]
    if not values:
        return {"value": None, "low": None, "high": None}
    if len(values) > 1:
        return {"value": mean(values), "low": min(values), "high": max(values)}
    interval = rows[0]["intervals"].get(name)
    return {"value": values[0], "low": interval and interval[0], "high": interval and interval[1]}


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(mean(known), form) if known else "–"


def print_table(content: Mapping[str, Any], console: Console) -> None:
    facts = content["facts"]
    about = f", {facts['episodes']} episodes, {facts['tasks']} tasks" if "episodes" in facts else ""
    table = new_table(
        f"{content['name']}{about}: %, interval below", ["", *FIGURES, "seconds\na step", "tokens\na step"]
    )
    for block in _BLOCKS:
        for row in rows_of(content, block):
            tokens = row.costs.get("tokens read", "")
            label = Text(f"  {row.label}", "dim") if row.agent is None else _with_kind(row)
            table.add_row(label, *map(_text, row.figures.values()), row.costs.get("seconds a step", ""), tokens)
    for row in baseline_rows(content):
        table.add_row(Text(row.label, "dim"), *map(_text, row.figures.values()), "", "")
    console.print(table)


def _with_kind(row: Row) -> Text:
    return Text(row.label).append(f"\n{row.kind}" if row.kind else "", "dim")


def _text(cell: Cell) -> Text:
    if cell["value"] is None:
        return Text("–")
    found = Text(f"{cell['value']:.1f}")
    return found if cell["low"] is None else found.append(f"\n{cell['low']:.0f}–{cell['high']:.0f}", "dim")


@dataclass(frozen=True)
class ShownAnswer:
    """An agent's answer to a screen. `color`: the number of its CSS class."""

    color: int
    name: str
    words: str
    right: bool


@dataclass(frozen=True)
class DividingScreen:
    """A step about which agents disagree, with every answer; `step` counts from 1."""

    goal: str
    episode: str
    subset: str
    step: int
    length: int
    picture: str
    height: int
    marks: tuple[Mark, ...]
    gold: str
    answers: tuple[ShownAnswer, ...]


def write_page(path: Path, content: Mapping[str, Any], shards: Path) -> None:
    """Writes the page; screens come from `shards`, answers from the folders beside `path`."""
    page = page_environment(Path(__file__).with_name("template"))
    page.filters["share"] = lambda value: "–" if value is None else f"{value:.1f}"
    page.filters["points"] = lambda value: "–" if value is None else f"{value:+.1f}".replace("-", "−")
    text = page.get_template("comparison.html.jinja").render(
        content=content,
        figures=FIGURES,
        costs=list(_COST_FORMS),
        blocks={title: list(rows_of(content, block)) for block, title in _BLOCKS.items()},
        baselines=list(baseline_rows(content)),
        matrices=_matrices(content),
        screens=list(_screens(content, path.parent, shards)),
        view_width=VIEW_WIDTH,
        style=page_style(),
    )
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def _matrices(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By scorer: the difference of each row's agent to each column's, means over seeds, and whether 0 is outside of
    every interval."""
    keys = [key for key, about in content["agents"].items() if about["rows"]]
    names = {key: content["agents"][key]["name"] for key in keys}
    found = {}
    for scorer in ("official", "strict"):
        cells: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        for pair in content["pairs"]:
            difference, interval = pair[scorer]["difference"], pair[scorer]["interval"]
            decided = interval is not None and (interval[0] > 0 or interval[1] < 0)
            cells.setdefault((pair["second"], pair["first"]), []).append((difference, decided))
            cells.setdefault((pair["first"], pair["second"]), []).append((-difference, decided))
        rows = [
            {"name": names[row], "cells": [_pair_cell(cells.get((row, column))) for column in keys]} for row in keys
        ]
        found[scorer] = {"columns": list(names.values()), "rows": rows}
    return found


def _pair_cell(pairs: Sequence[tuple[float, bool]] | None) -> dict[str, Any]:
    if pairs is None:
        return {"value": None, "decided": False}
    return {"value": mean(value for value, _ in pairs), "decided": all(decided for _, decided in pairs)}


def _screens(content: Mapping[str, Any], output: Path, shards: Path) -> Iterator[DividingScreen]:
    chosen = content["dividing"]
    if not chosen:
        return
    dataset = ShardDataset(shards, split=content["facts"]["split"])
    position = {episode_id: index for index, episode_id in enumerate(dataset.ids)}
    ids = {one["episode"] for one in chosen}
    keys = list(chosen[0]["right"])
    answers = {
        key: rows_by_id(output / OFFLINE / f"{key}_{_first_seed(content, key)}" / "predictions.parquet", ids)
        for key in keys
    }
    for one in chosen:
        episode = dataset[position[one["episode"]]]
        screen = episode.steps[one["step"]].screenshot
        if screen is None:
            raise AssertionError("a data set of shards decodes every screenshot")
        rows = {key: answers[key][one["episode"]][one["step"]] for key in keys}
        height = round(VIEW_WIDTH * screen.shape[0] / screen.shape[1])
        gold = next(iter(rows.values())).gold
        yield DividingScreen(
            goal=episode.goal,
            episode=one["episode"],
            subset=episode.subset,
            step=one["step"] + 1,
            length=len(episode),
            picture=thumbnail(screen, _WIDTH),
            height=height,
            marks=_gestures(gold, rows, height),
            gold=describe(gold),
            answers=tuple(
                ShownAnswer(number, content["agents"][key]["name"], _words(row), one["right"][key])
                for number, (key, row) in enumerate(rows.items())
            ),
        )


def _first_seed(content: Mapping[str, Any], key: str) -> str:
    return next(iter(content["agents"][key]["rows"]))


def _gestures(gold: Action, rows: Mapping[str, Prediction], height: int) -> tuple[Mark, ...]:
    actions = [("gold", gold), *((f"agent-{number}", row.predicted) for number, row in enumerate(rows.values()))]
    return tuple(mark for mark in marks(actions, height) if mark.path)


def _words(row: Prediction) -> str:
    """The action in words; the text of an answer that is none."""
    if row.predicted is not None:
        return describe(row.predicted)
    text = row.text if len(row.text) <= _WORDS else row.text[:_WORDS] + "…"
    return f"no action: {text}"
