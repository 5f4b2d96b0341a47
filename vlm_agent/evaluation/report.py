"""`report.html`: one self-contained file with the table, the errors by kind and step, and pictures of them.

Nothing in it is loaded from elsewhere, and every word of a goal or a model is escaped: model output is data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.datasets import written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.evaluation.gallery import GOLD_COLOUR, RIGHT_COLOUR, WRONG_COLOUR, choose, panels
from vlm_agent.evaluation.metrics import SHARES, UNPARSED
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.verdicts import SCORERS

_TEMPLATE = "report.html.jinja"
_PLOT = {"width": 640, "height": 220, "left": 40, "right": 70, "top": 12, "bottom": 34}


def write_report(
    output: Path,
    runs: Mapping[str, Mapping],
    predictions: Sequence[Prediction],
    dataset: ShardDataset,
    facts: Mapping[str, str],
    *,
    language: ActionLanguage | None = None,
    worst: int = 8,
    random: int = 4,
    seed: int = 0,
) -> None:
    """Writes the report to `output`, whole or not at all.

    `runs` maps names to what `metrics.score` or `baselines.blind_ceiling` returned; the first is the run that
    `predictions` belong to, the others are its controls and baselines. `facts` head the page: what was run, on what,
    when. `dataset` gives the screens of the `worst` and the `random` episodes shown; `language` (binned in 100, if
    none is given) writes the gold actions. Raises DatasetError where an episode shown is not in `dataset`.
    """
    language = BinnedLanguage() if language is None else language
    main, scores = next(iter(runs.items()))
    worst_ids, random_ids = choose(predictions, worst, random, seed)
    page = (
        _environment()
        .get_template(_TEMPLATE)
        .stream(
            main=main,
            facts=facts,
            runs=runs,
            columns=_columns(runs),
            scorers=SCORERS,
            scores=scores,
            shares=SHARES,
            confusion=_confusion(scores["confusion"]),
            curve=_curve(scores["by_step"]),
            galleries={
                "Worst episodes": panels(worst_ids, predictions, dataset, language),
                "Random episodes": panels(random_ids, predictions, dataset, language),
            },
            colours={"gold": _css(GOLD_COLOUR), "right": _css(RIGHT_COLOUR), "wrong": _css(WRONG_COLOUR)},
        )
    )
    with written_whole(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = lambda share: "–" if share is None else f"{share:.1f}"
    environment.filters["words"] = lambda name: name.replace("_", " ")
    return environment


def _css(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _columns(runs: Mapping[str, Mapping]) -> list[str]:
    """Columns that some run has a number for."""
    first = next(iter(runs.values()))["official"]
    return [c for c in first if any(c in r["official"] and r["official"][c]["steps"] for r in runs.values())]


def _confusion(counts: Mapping[str, Mapping[str, int]]) -> dict:
    """Rows of gold kinds that occur, columns of kinds gold or predicted, each cell with its share of the row."""
    totals = {gold: sum(row.values()) for gold, row in counts.items()}
    rows = [gold for gold, total in totals.items() if total]
    columns = [name for name in (*counts, UNPARSED) if name in rows or any(row[name] for row in counts.values())]
    cells = {
        gold: {name: {"count": counts[gold][name], "share": counts[gold][name] / totals[gold]} for name in columns}
        for gold in rows
    }
    return {"rows": rows, "columns": columns, "cells": cells, "totals": totals}


def _curve(by_step: Sequence[Mapping]) -> dict:
    """Accuracy by step index as coordinates of an SVG: lines of both scorers over bars of how many steps there are."""
    inner_width = _PLOT["width"] - _PLOT["left"] - _PLOT["right"]
    inner_height = _PLOT["height"] - _PLOT["top"] - _PLOT["bottom"]
    slot = inner_width / max(1, len(by_step))
    base = _PLOT["top"] + inner_height
    most = max((row["steps"] for row in by_step), default=1)

    def y(share: float) -> float:
        return round(base - share / 100 * inner_height, 1)

    centres = [round(_PLOT["left"] + (index + 0.5) * slot, 1) for index in range(len(by_step))]
    every = max(1, round(28 / slot)) if by_step else 1
    return {
        **_PLOT,
        "base": base,
        "grid": [(share, y(share)) for share in (0, 25, 50, 75, 100)],
        "bars": [
            {"x": round(x - slot * 0.35, 1), "width": round(slot * 0.7, 1), "y": y(100 * row["steps"] / most), **row}
            for x, row in zip(centres, by_step, strict=True)
        ],
        "ticks": [(x, row["step"] + 1) for x, row in zip(centres, by_step, strict=True)][::every],
        "lines": {s: [(x, y(row[s])) for x, row in zip(centres, by_step, strict=True)] for s in SCORERS},
    }
