"""`report.html`: one self-contained file with the tables, the published numbers, the errors by kind and step, and
pictures of them.

Nothing in it is loaded from elsewhere, which its content security policy enforces, and every word of a goal or a model
is escaped: model output is data. Pictures lie in the page as text and become pictures where a reader comes near them.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.datasets import written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.evaluation.judged import judge_steps
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.report.curves import curve
from vlm_agent.evaluation.report.gallery import (
    RIGHT_TO_WRONG,
    WRONG_TO_RIGHT,
    Gallery,
    Panel,
    choose,
    choose_flips,
    rows_by_id,
)
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH
from vlm_agent.evaluation.report.published import on_the_same_split, published_tables
from vlm_agent.evaluation.report.tables import comparison_tables, confusion_table, scorer_tables

_PAGE = Path(__file__).with_name("template")
_FEW = 100
_WIDTH_OF_FEW, _WIDTH_OF_MANY = 300, 180
"""Of pictures, in pixels: of up to `_FEW` episodes they may be read, of more they only show what the screen is."""

_FLIPS = {RIGHT_TO_WRONG: "Right before, wrong now", WRONG_TO_RIGHT: "Wrong before, right now"}

Predictions = Path | Sequence[Prediction]
"""A predictions file, or what is in one."""


@dataclass(frozen=True)
class Earlier:
    """An earlier run over the same steps: its name, its predictions, and what `comparison.compare` says of the two,
    the earlier one first."""

    name: str
    predictions: Predictions
    comparison: Mapping


@dataclass(frozen=True)
class _Section:
    """A gallery: `flips` are single steps, side by side."""

    title: str
    panels: Iterator[Panel]
    flips: bool = False


def write_report(
    output: Path,
    runs: Mapping[str, Mapping],
    predictions: Predictions,
    dataset: ShardDataset,
    facts: Mapping[str, str],
    *,
    language: ActionLanguage | None = None,
    earlier: Earlier | None = None,
    episodes: int = 40,
    flips: int = 10,
    seed: int = 0,
) -> None:
    """Writes the report to `output`, whole or not at all.

    `runs` maps names to what `metrics.score` or `baselines.blind_ceiling` returned; the first is the run that
    `predictions` belong to, the others are its controls and baselines. `facts` head the page: what was run, on what,
    when. `dataset` gives the screens of the `episodes` shown, half of them the worst and half drawn by `seed`, and,
    with an `earlier` run, of `flips` steps each way; `language` (binned in 100, if none is given) writes the gold
    actions.

    Raises DatasetError where an episode shown is not in `dataset`.
    """
    main, scores = next(iter(runs.items()))
    scorers = list(scores["scorers"])
    gallery = Gallery(
        dataset,
        BinnedLanguage() if language is None else language,
        scorers,
        _WIDTH_OF_FEW if episodes <= _FEW else _WIDTH_OF_MANY,
    )
    sections = list(_sections(gallery, main, predictions, earlier, episodes, flips, seed))
    script = (_PAGE / "report.js").read_text(encoding="utf-8")
    published = published_tables()
    page = (
        _environment()
        .get_template("report.html.jinja")
        .stream(
            main=main,
            facts=facts,
            runs=runs,
            scores=scores,
            scorers=scorers,
            tables=list(scorer_tables(runs)),
            published=published,
            same_split=[table.title for table in on_the_same_split(published, scores.get("about", {}))],
            earlier=earlier,
            comparison=None if earlier is None else list(comparison_tables(earlier.comparison)),
            confusion=confusion_table(scores["confusion"]),
            curves=_curves(scores, scorers),
            sections=sections,
            action_names=ACTION_NAMES,
            view_width=VIEW_WIDTH,
            style=Markup((_PAGE / "report.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
            script=Markup(script),  # noqa: S704 (our own file)
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
    page.enable_buffering(64)
    with written_whole(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def _sections(
    gallery: Gallery,
    main: str,
    predictions: Predictions,
    earlier: Earlier | None,
    episodes: int,
    flips: int,
    seed: int,
) -> Iterator[_Section]:
    worst, drawn = choose(judge_steps(predictions), (episodes + 1) // 2, episodes // 2, seed)
    changed = {} if earlier is None else earlier.comparison["changed"]["official"]
    flipped = {way: choose_flips(changed[way], flips, seed) for way in _FLIPS if way in changed}
    flipped_ids = {episode_id for steps in flipped.values() for episode_id, _ in steps}
    ids = {*worst, *drawn, *flipped_ids}
    gallery.check([*worst, *drawn, *sorted(flipped_ids)])
    rows = rows_by_id(predictions, ids)
    yield _Section("Worst episodes", gallery.episodes(worst, rows))
    yield _Section("Episodes drawn at random", gallery.episodes(drawn, rows))
    if earlier is not None:
        before = (earlier.name, rows_by_id(earlier.predictions, flipped_ids))
        for way, steps in flipped.items():
            yield _Section(_FLIPS[way], gallery.flips(steps, before, (main, rows)), flips=True)


def _curves(scores: Mapping, scorers: Sequence[str]) -> dict[str, dict]:
    by_step = [row | {"step": row["step"] + 1} for row in scores["by_step"]]
    return {
        "Accuracy by step": curve(by_step, "step", "steps", scorers),
        "Accuracy by length of the episode": curve(scores["by_length"], "length", "episodes", scorers),
    }


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = lambda share: "–" if share is None else f"{share:.1f}"
    environment.filters["points"] = lambda points: "–" if points is None else f"{points:+.1f}".replace("-", "−")
    environment.filters["words"] = lambda name: name.replace("_", " ")
    return environment
