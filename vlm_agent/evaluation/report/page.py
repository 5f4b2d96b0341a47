"""`report.html`: one self-contained file with the score, pictures of errors, all tables and published numbers.

The page loads nothing from elsewhere; its content security policy enforces this. Every goal and model output is
escaped. Pictures are text in a `noscript`; a script turns those near the visible part of the page into elements.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from vlm_agent.action_languages import ActionLanguage, default_language
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.report.gallery import (
    RIGHT_TO_WRONG,
    WRONG_TO_RIGHT,
    Gallery,
    Panel,
    ShownRun,
    choose,
    choose_flips,
    rows_by_id,
)
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH
from vlm_agent.evaluation.report.published import (
    in_subsets,
    is_published_data,
    on_the_same_split,
    published_tables,
    split_sentences,
)
from vlm_agent.evaluation.report.tables import (
    comparison_tables,
    confusion_table,
    curve,
    scorer_tables,
    summary_of_comparison,
    summary_table,
)
from vlm_agent.evaluation.report.terminal import SPREAD, costs_in_words, slip_lines
from vlm_agent.evaluation.scoring.judged import JudgedSteps, judge_steps
from vlm_agent.files import atomic_write
from vlm_agent.files.pages import page_environment

_TEMPLATE = Path(__file__).with_name("template")
_FEW = 100
_WIDTH_OF_FEW, _WIDTH_OF_MANY = 300, 180
"""Widths of pictures in pixels: texts are legible on pages of up to `_FEW` episodes; larger pages must stay small."""

_SEED = 0

_FLIPS = {RIGHT_TO_WRONG: "Right before, wrong now", WRONG_TO_RIGHT: "Wrong before, right now"}
_BY = {"official": "by the official scorer", "strict": "by the strict scorer alone"}
"""The scorers whose changed steps have pictures."""

Predictions = Path | Sequence[Prediction]
"""A predictions file, or its rows."""


@dataclass(frozen=True)
class Earlier:
    """An earlier run over the same steps: name, predictions, and the `comparison.compare` result, earlier run first.

    `judged`: the same predictions with verdicts; None: they are judged here.
    """

    name: str
    predictions: Predictions
    comparison: Mapping
    judged: JudgedSteps | None = None


@dataclass(frozen=True)
class _Section:
    """A gallery. `id`: of its element on the page. With a `scorer` its panels are single steps, side by side, that
    changed by it."""

    id: str
    title: str
    panels: Iterator[Panel]
    scorer: str = ""


def write_report(
    output: Path,
    runs: Mapping[str, Mapping],
    predictions: Predictions,
    dataset: ShardDataset,
    facts: Mapping[str, str],
    *,
    title: str = "",
    judged: JudgedSteps | None = None,
    language: ActionLanguage | None = None,
    earlier: Earlier | None = None,
    episodes: int = 40,
    flips: int = 10,
) -> None:
    """Writes the report to `output` atomically.

    `runs` maps names to results of `metrics.score` or `baselines.blind_ceiling`. The first one is the run of
    `predictions`, the others are its controls and baselines. `judged` holds the same predictions with verdicts by all
    scorers of that run; if None, they are judged here. `facts` are shown at the top: the agent, the data, the split.
    `title`: of the page, by default the name of the run. Names are shown as they are.

    `dataset` holds the screens. Published numbers are shown where it is of a data set that has some. The report shows
    `episodes` of its episodes, half the worst and half drawn at random, and at most `flips` steps that became right
    since an `earlier` run by the official scorer, as many that became wrong, and as many of each by the strict scorer
    alone. Gold actions are written in `language`, by default the default action language of recipes.

    Raises DatasetError if an episode that the report shows is not in `dataset`.
    """
    main, scores = next(iter(runs.items()))
    scorers = list(scores["scorers"])
    steps = judge_steps(predictions if judged is None else judged, scorers)
    width = _WIDTH_OF_FEW if episodes <= _FEW else _WIDTH_OF_MANY
    gallery = Gallery(dataset, default_language() if language is None else language, scorers, width)
    published, about = published_tables() if is_published_data(dataset) else (), scores.get("about", {})
    _render(
        output,
        title=title or main,
        main=main,
        facts=facts,
        summary=summary_table(runs),
        runs=runs,
        scores=scores,
        scorers=scorers,
        tables=list(scorer_tables(runs)),
        published=published,
        same_split={title: in_subsets(subsets) for title, subsets in on_the_same_split(published, about).items()},
        split_sentences=split_sentences(published, about),
        earlier=earlier,
        difference=None if earlier is None else summary_of_comparison(earlier.comparison),
        comparison=None if earlier is None else list(comparison_tables(earlier.comparison)),
        confusion=confusion_table(scores["confusion"]),
        spread_heads=SPREAD,
        slip_lines=list(slip_lines({name: row["slips"] for name, row in scores.get("spread", {}).items()})),
        costs=costs_in_words(runs),
        curves=_curves(scores, scorers),
        sections=list(_sections(gallery, steps, main, predictions, earlier, episodes, flips)),
    )


def _render(output: Path, **content: object) -> None:
    """Writes the page atomically and panel by panel, so that only one episode's pictures are in memory."""
    script = (_TEMPLATE / "report.js").read_text(encoding="utf-8")
    template = make_environment().get_template("report.html.jinja")
    page = template.stream(
        **content,
        action_names=ACTION_NAMES,
        view_width=VIEW_WIDTH,
        style=page_style(),
        script=Markup(script),  # noqa: S704 (our own file)
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    page.enable_buffering(64)
    with atomic_write(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def _sections(
    gallery: Gallery,
    steps: JudgedSteps,
    main: str,
    predictions: Predictions,
    earlier: Earlier | None,
    episodes: int,
    flips: int,
) -> Iterator[_Section]:
    worst, drawn = choose(steps, (episodes + 1) // 2, episodes // 2, _SEED)
    changed = [] if earlier is None else list(_changed(earlier.comparison["changed"], flips))
    flipped_ids = {episode_id for *_, chosen in changed for episode_id, _ in chosen}
    gallery.check([*worst, *drawn, *sorted(flipped_ids)], steps)
    now = ShownRun(main, rows_by_id(predictions, {*worst, *drawn, *flipped_ids}), steps)
    if earlier is not None:
        judged = judge_steps(earlier.predictions if earlier.judged is None else earlier.judged, gallery.scorers)
        before = ShownRun(earlier.name, rows_by_id(earlier.predictions, flipped_ids), judged)
        for name, title, scorer, chosen in changed:
            yield _Section(name, title, gallery.flips(chosen, before, now), scorer)
    now = replace(now, who="agent")
    yield _Section("worst", "Worst episodes", gallery.episodes(worst, now))
    yield _Section("drawn", "Episodes drawn at random", gallery.episodes(drawn, now))


def _changed(changed: Mapping[str, Mapping], flips: int) -> Iterator[tuple[str, str, str, list[tuple[str, int]]]]:
    """Id, title and scorer of a section, and the (episode id, step) in it: steps that changed in one direction by a
    scorer, of the strict one those that did not by the official one. `changed`: of `comparison.compare`."""
    for scorer in _BY:
        for way in _FLIPS:
            steps = changed[scorer][way]
            if scorer != "official":
                official = changed["official"][way]
                alone = {
                    name: [step for step in of if step not in official.get(name, ())] for name, of in steps.items()
                }
                steps = {name: of for name, of in alone.items() if of}
            if steps or scorer == "official":
                chosen = choose_flips(steps, flips, _SEED)
                title = f"{_FLIPS[way]}: {len(chosen)} of {sum(map(len, steps.values()))} steps {_BY[scorer]}"
                yield way if scorer == "official" else f"{scorer}_{way}", title, scorer, chosen


def _curves(scores: Mapping, scorers: Sequence[str]) -> dict[str, dict]:
    by_step = [row | {"step": row["step"] + 1} for row in scores["by_step"]]
    return {
        "Accuracy by step": curve(by_step, "step", "steps", scorers),
        "Accuracy by length of the episode": curve(scores["by_length"], "length", "episodes", scorers),
    }


def page_style() -> Markup:
    return Markup((_TEMPLATE / "report.css").read_text(encoding="utf-8"))  # noqa: S704 (our own file)


def make_environment(templates: Path = _TEMPLATE) -> Environment:
    """Jinja with `templates` and the filters of reports; everything is escaped."""
    environment = page_environment(templates)
    environment.filters["share"] = lambda share: "–" if share is None else f"{share:.1f}"
    environment.filters["points"] = lambda points: "–" if points is None else f"{points:+.1f}".replace("-", "−")
    return environment
