"""The table of a comparison at the terminal, and `comparison.html`: one self-contained file that loads nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.text import Text

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.drawing.actions import describe
from vlm_agent.episodes import Action
from vlm_agent.evaluation.comparison.stages import OFFLINE
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.report.gallery import pixels_of, rows_by_id, thumbnail
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH, Mark, marks
from vlm_agent.evaluation.report.page import make_environment, page_style
from vlm_agent.files import atomic_write
from vlm_agent.files.console import new_table
from vlm_agent.files.pages import words

_WIDTH = 240
"""The width of a picture, in pixels."""

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
    "elsewhere": "Trained on other data",
    "prompted": "Prompted: the model sees prompts of the paper's kind",
}

Cell = Mapping[str, Any]
"""`value`, `low`, `high`: the mean over seeds with the lowest and highest one; of one seed with its 95 % interval."""

_OF_PAIR = ("first", "second", "seed")

_NOTHING: Cell = {"value": None, "low": None, "high": None, "decided": False}


@dataclass(frozen=True)
class ComparisonRow:
    """A line of the table. `label`: of an agent, or of its control."""

    label: str
    figures: Mapping[str, Cell]
    costs: Mapping[str, str]
    agent: Mapping[str, Any] | None = None


def rows_of(content: Mapping[str, Any], block: str) -> Iterator[ComparisonRow]:
    """The agents of a block that have a result, each followed by its controls."""
    for about in content["agents"].values():
        rows = list(about["rows"].values())
        if about["block"] != block or not rows:
            continue
        costs = {name: _mean([row["costs"].get(name) for row in rows], form) for name, form in _COST_FORMS.items()}
        figures = content["figures"]
        yield ComparisonRow(about["name"], _cells(rows, figures), costs, about)
        for name in rows[0]["controls"]:
            controls = [row["controls"][name] for row in rows if name in row["controls"]]
            yield ComparisonRow(words(name), _cells(controls, figures), {})


def baseline_rows(content: Mapping[str, Any]) -> Iterator[ComparisonRow]:
    for name, row in content["baselines"].items():
        yield ComparisonRow(words(name), _cells([row], content["figures"]), {})


def _cells(rows: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> dict[str, Cell]:
    return {name: _cell(rows, name) for name in figures}


def _cell(rows: Sequence[Mapping[str, Any]], name: str) -> Cell:
    known = [row for row in rows if row["figures"].get(name) is not None]
    values = [row["figures"][name] for row in known]
    if not values:
        return {"value": None, "low": None, "high": None}
    if len(values) > 1:
        return {"value": mean(values), "low": min(values), "high": max(values)}
    interval = known[0]["intervals"].get(name)
    return {"value": values[0], "low": interval and interval[0], "high": interval and interval[1]}


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(mean(known), form) if known else "–"


def print_table(content: Mapping[str, Any], console: Console) -> None:
    facts = content["facts"]
    about = f", {facts['episodes']} episodes, {facts['tasks']} tasks" if "episodes" in facts else ""
    columns = ["", *content["figures"], "seconds\na step", "tokens a step,\nread + written"]
    table = new_table(f"{content['name']}{about}: %", columns)
    for block in _BLOCKS:
        for row in rows_of(content, block):
            label = Text(f"  {row.label}", "dim") if row.agent is None else Text(row.label).append(f"\n{block}", "dim")
            table.add_row(label, *map(_text, row.figures.values()), row.costs.get("seconds a step", ""), _tokens(row))
    for row in baseline_rows(content):
        table.add_row(Text(row.label, "dim"), *map(_text, row.figures.values()), "", "")
    console.print(table)
    _print_differences(content, console)
    console.print("Second lines: 95 % intervals; with several seeds the lowest and the highest seed", highlight=False)


def _print_differences(content: Mapping[str, Any], console: Console) -> None:
    """A row for every two agents; the page has the same as a matrix."""
    cells, measures = _differences(content), _measures(content)
    table = new_table("Paired differences, points", ["", *measures])
    for first, second in combinations([key for key, about in content["agents"].items() if about["rows"]], 2):
        if (second, first) in cells:
            names = (content["agents"][key]["name"] for key in (second, first))
            table.add_row(" − ".join(names), *(_text(cells[second, first][name], "+.1f") for name in measures))
    if table.row_count:
        console.print(table)


def _tokens(row: ComparisonRow) -> str:
    """Read + written; empty for a control, "–" where the agent does not report them."""
    found = [row.costs[name] for name in ("tokens read", "tokens written") if name in row.costs]
    return "–" if set(found) == {"–"} else " + ".join(found)


def _text(cell: Cell, form: str = ".1f") -> Text:
    if cell["value"] is None:
        return Text("–")
    found = Text(format(cell["value"], form))
    return found if cell["low"] is None else found.append(f"\n{cell['low']:{form}} {cell['high']:{form}}", "dim")


def write_page(path: Path, content: Mapping[str, Any], shards: Path) -> None:
    """Writes the page; screens come from `shards`, answers from the folders beside `path`."""
    page = make_environment(Path(__file__).with_name("template"))
    text = page.get_template("comparison.html.jinja").render(
        content=content,
        figures=content["figures"],
        costs=list(_COST_FORMS),
        blocks={title: list(rows_of(content, block)) for block, title in _BLOCKS.items()},
        baselines=list(baseline_rows(content)),
        matrices=_matrices(content),
        first_seeds=_first_seeds(content),
        screens=list(_screens(content, path.parent, shards)),
        view_width=VIEW_WIDTH,
        style=page_style(),
    )
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def _matrices(content: Mapping[str, Any]) -> dict[str, list[tuple[str, list[Cell]]]]:
    """By scorer, and for success: each agent's name, and its difference to every agent in the same order."""
    agents = {key: about["name"] for key, about in content["agents"].items() if about["rows"]}
    cells, measures = _differences(content), _measures(content)
    itself = {measure: _NOTHING for measure in measures}
    return {
        measure: [
            (name, [cells.get((row, column), itself)[measure] for column in agents]) for row, name in agents.items()
        ]
        for measure in measures
    }


def _differences(content: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Cell]]:
    """{(agent, other): {measure: cell}} of agent minus other in both orders, with `decided`: whether the
    intervals of all seeds are on the same side of 0."""
    by_pair: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pair in content["pairs"]:
        by_pair.setdefault((pair["second"], pair["first"]), []).append(pair)
    found = {}
    for (second, first), pairs in by_pair.items():
        cells = {name: _difference([pair[name] for pair in pairs]) for name in _measures(content)}
        found[second, first] = cells
        found[first, second] = {name: _reversed(cell) for name, cell in cells.items()}
    return found


def _measures(content: Mapping[str, Any]) -> list[str]:
    """What agents are compared by: scorers, and success."""
    return list(dict.fromkeys(name for pair in content["pairs"] for name in pair if name not in _OF_PAIR))


def _difference(of_seeds: Sequence[Mapping[str, Any]]) -> Cell:
    values = [one["difference"] for one in of_seeds]
    if None in values:
        return _NOTHING
    intervals = [one["interval"] for one in of_seeds]
    low, high = (min(values), max(values)) if len(values) > 1 else intervals[0] or (None, None)
    decided = abs(sum(map(_side, intervals))) == len(intervals)
    return {"value": mean(values), "low": low, "high": high, "decided": decided}


def _side(interval: Sequence[float] | None) -> int:
    """1 above 0, -1 below it, otherwise 0."""
    return 0 if interval is None else (interval[0] > 0) - (interval[1] < 0)


def _reversed(cell: Cell) -> Cell:
    value, low, high = (None if cell[name] is None else 0.0 - cell[name] for name in ("value", "high", "low"))
    return {"value": value, "low": low, "high": high, "decided": cell["decided"]}


def _screens(content: Mapping[str, Any], output: Path, shards: Path) -> Iterator[dict[str, Any]]:
    """The steps about which agents disagree, with every answer; `step` counts from 1, `color` is the number of a CSS
    class."""
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
        screen = pixels_of(episode.steps[one["step"]])
        rows = {key: answers[key][one["episode"]][one["step"]] for key in keys}
        height = round(VIEW_WIDTH * screen.shape[0] / screen.shape[1])
        gold = next(iter(rows.values())).gold
        yield dict(
            goal=episode.goal,
            episode=one["episode"],
            subset=episode.subset,
            step=one["step"] + 1,
            length=len(episode),
            picture=thumbnail(screen, _WIDTH),
            height=height,
            marks=_gestures(gold, rows, height),
            gold=describe(gold),
            answers=[
                dict(color=number, name=content["agents"][key]["name"], words=_words(row), right=one["right"][key])
                for number, (key, row) in enumerate(rows.items())
            ],
        )


def _first_seed(content: Mapping[str, Any], key: str) -> str:
    return next(iter(content["agents"][key]["rows"]))


def _first_seeds(content: Mapping[str, Any]) -> str:
    """Which seeds the shown answers are of: "0", or "agent 0, other 1" where they differ."""
    seeds = {about["name"]: _first_seed(content, key) for key, about in content["agents"].items() if about["rows"]}
    if len(set(seeds.values())) == 1:
        return next(iter(seeds.values()))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items())


def _gestures(gold: Action, rows: Mapping[str, Prediction], height: int) -> tuple[Mark, ...]:
    actions = [("gold", gold), *((f"agent-{number}", row.predicted) for number, row in enumerate(rows.values()))]
    elements = next(iter(rows.values())).shown
    return tuple(mark for mark in marks(actions, height, elements) if mark.path)


def _words(row: Prediction) -> str:
    """The action in words; the text of an answer that is none."""
    if row.predicted is not None:
        return describe(row.predicted)
    text = row.text if len(row.text) <= _WORDS else row.text[:_WORDS] + "…"
    return f"no action: {text}"
