"""Scores as tables for the terminal.

`comparison_table` has a row for each run, with the official partial match above the strict one. `print_scores` and
`print_comparison` show one run, or the difference of two, with a row for each scorer. `parse_failure_table` and
`example_line` are about answers that are not an action, `online_tables` about tasks on phones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.episodes import Screen
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import COST_FORMS, Prediction
from vlm_agent.evaluation.scoring.aitz.metrics import MEASURES
from vlm_agent.evaluation.scoring.measures import SHARES, SHARES_OF_TASKS
from vlm_agent.evaluation.scoring.metrics import OVERALL, UNPARSED, headline, shown_sets
from vlm_agent.files.console import new_table, print_plain
from vlm_agent.files.pages import words
from vlm_agent.texts.lines import in_fence


def comparison_table(runs: Mapping[str, Mapping], title: str = "") -> Table:
    """A rich Table of the partial match in percent; `runs` maps a run's name to its `metrics.score` result.

    Columns are overall, the subsets with episodes, and the groups (`metrics.shown_sets`).
    Fits 80 characters with five subsets and one group. Print it with `rich.console.Console().print(table)`.
    """
    shares = {name: headline(scores) for name, scores in runs.items()}
    rows = next(iter(runs.values()))["official"]
    columns = shown_sets(rows)
    table = _table_of_sets(title or "Partial match, %: official, strict below", rows)
    for name, by_scorer in shares.items():
        cells = [
            Text.assemble(_number(by_scorer["official"].get(c)), "\n", (_number(by_scorer["strict"].get(c)), "dim"))
            for c in columns
        ]
        table.add_row(Text(name), *cells)
    _add_episodes(table, rows)
    return table


def aitz_tables(runs: Mapping[str, Mapping]) -> Iterator[Table]:
    """AitZ's metrics, a table for each of its scorers, with a column for each run that has them; none without any."""
    scored = {name: scores["aitz"] for name, scores in runs.items() if "aitz" in scores}
    for scorer in dict.fromkeys(scorer for by_scorer in scored.values() for scorer in by_scorer):
        named = {name: by_scorer[scorer] for name, by_scorer in scored.items() if scorer in by_scorer}
        yield _aitz_table(f"AitZ, %, by {scorer}", named)


def cost_tables(runs: Mapping[str, Mapping]) -> Iterator[Table]:
    """Tokens, calls and seconds an episode (`predictions.cost_per_episode`) of the runs that report them, or none."""
    if costs := costs_in_words(runs):
        table = _table("Cost an episode, mean", [_on_lines(name) for name in COST_FORMS])
        for name, cost in costs.items():
            table.add_row(Text(name), *cost.values())
        yield table


def costs_in_words(runs: Mapping[str, Mapping]) -> dict[str, dict[str, str]]:
    """By run that reports them, the costs an episode as text."""
    costs = {name: scores["cost"] for name, scores in runs.items() if "cost" in scores}
    return {name: {of: _number(cost[of], form) for of, form in COST_FORMS.items()} for name, cost in costs.items()}


def _number(value: float | None, form: str = ".1f") -> str:
    return "–" if value is None else format(value, form)


def _aitz_table(title: str, columns: Mapping[str, Mapping]) -> Table:
    table = _table(title, list(columns))
    for measure in MEASURES:
        cells = (column[measure] for column in columns.values())
        table.add_row(words(measure), *(_with_interval(cell["value"], cell["interval"]) for cell in cells))
    return table


_WORDS = {"wrong_to_right": "wrong → right", "right_to_wrong": "right → wrong"}


def print_scores(console: Console, scores: Mapping, title: str) -> None:
    """Prints a `metrics.score` result: the partial match by subset, and every overall share, for each scorer."""
    scorers = list(scores["scorers"])
    columns = shown_sets(scores[scorers[0]])
    parts = _table_of_sets(f"{title}: partial match, % [95 % interval]", scores[scorers[0]])
    for scorer in scorers:
        rows = scores[scorer]
        parts.add_row(
            scorer, *(_with_interval(rows[name]["partial_match"], rows[name]["interval"]) for name in columns)
        )
    _add_episodes(parts, scores[scorers[0]])
    console.print(parts)
    shares = _table(f"{title}: overall, %", scorers)
    overall = [scores[scorer]["overall"] for scorer in scorers]
    for share in SHARES:
        shares.add_row(share.replace("_", " "), *(_with_interval(row[share], None) for row in overall))
    console.print(shares)
    if "aitz" in scores:
        console.print(_aitz_table(f"{title}: AitZ, % [95 % interval]", scores["aitz"]))


SPREAD = {
    "step_success": "step\nsuccess",
    "kind": "kind",
    "grounding": "ground-\ning",
    "blind_ceiling": "blind\nceiling",
    "most_frequent": "most\nfrequent",
    "grey": "grey\nscreens",
}
"""The shares of `spread.spread` in the order of its table, and their heads."""


def print_spread(console: Console, rows: Mapping[str, Mapping], title: str) -> None:
    """Prints a `spread.spread` result, and what each slip of the published code decides."""
    table = _table(f"{title}: every scorer, %", [*SPREAD.values(), "steps", "left\nout"])
    for name, row in rows.items():
        shares = (_with_interval(row[share], row["interval"] if share == "step_success" else None) for share in SPREAD)
        table.add_row(name, *shares, f"{row['steps']:,}", f"{row['left_out']:,}")
    console.print(table)
    for line in slip_lines({name: row["slips"] for name, row in rows.items()}):
        print_plain(console, line)


def slip_lines(slips: Mapping[str, Mapping[str, Mapping]]) -> Iterator[str]:
    """A line for each slip that a scorer reproduces (`spread.slips`)."""
    for name, of_scorer in slips.items():
        for slip, found in of_scorer.items():
            value = "–" if found["without"] is None else f"{found['without']:.1f} %"
            yield f"{name}: the published code's slip '{slip}' decides {found['steps']:,} steps; without it {value}"


def print_comparison(console: Console, comparison: Mapping, first: str, second: str) -> None:
    """Prints a `comparison.compare` result of the runs named `first` and `second`."""
    scorers = list(comparison["scorers"])
    columns = shown_sets(comparison[scorers[0]])
    title = f"{second} minus {first}: partial match, points [95 % paired interval]"
    table = _table_of_sets(title, comparison[scorers[0]])
    for scorer in scorers:
        cells = (comparison[scorer][name]["partial_match"] for name in columns)
        table.add_row(scorer, *(_with_interval(cell["difference"], cell["interval"], "+.1f") for cell in cells))
    _add_episodes(table, comparison[scorers[0]])
    console.print(table)
    changes = _table("Steps that changed", list(_WORDS.values()))
    for scorer in scorers:
        changes.add_row(scorer, *(_count(comparison["changed"][scorer][way]) for way in _WORDS))
    console.print(changes)


def print_rules(console: Console, scorers: Mapping[str, Mapping[str, str]]) -> None:
    """Prints the rule and the source of each scorer, as in `scores["scorers"]`."""
    for name, about in scorers.items():
        console.print(Text.assemble((name, "bold"), f": {about['rule']} ({about['source']})"))


def _table(title: str, columns: Sequence[str]) -> Table:
    return new_table(title, ("", *columns))


def _on_lines(name: str) -> str:
    """A name of ours as a head, one word a line."""
    return name.replace("_", "\n")


def _table_of_sets(title: str, rows: Mapping[str, Mapping]) -> Table:
    """A table with a column for each of `shown_sets`; a group without episodes says so."""
    names = shown_sets(rows)
    return _table(title, [_on_lines(name) + ("" if rows[name]["episodes"] else "\n(0\nepisodes)") for name in names])


def _add_episodes(table: Table, rows: Mapping[str, Mapping]) -> None:
    """A last row with the number of episodes, which an interval, or its absence, is read with."""
    table.add_row(Text("episodes", "dim"), *(Text(f"{rows[name]['episodes']:,}", "dim") for name in shown_sets(rows)))


def _with_interval(value: float | None, interval: list[float] | None, form: str = ".1f") -> Text:
    if value is None:
        return Text("–")
    text = Text(format(value, form))
    if interval is not None:
        text.append(f"\n{interval[0]:{form}} {interval[1]:{form}}", "dim")
    return text


def _count(changed: Mapping[str, list[int]]) -> str:
    return f"{sum(map(len, changed.values()))} in {len(changed)} episodes"


MOST_PERCENT = 5.0
"""An example is shown above this share of parse failures."""

_CHARACTERS = 120
"""The limit of a shown answer."""


def parse_failure_table(runs: Mapping[str, Mapping]) -> Table:
    """A row for each run of `runs` (results of `metrics.score`): the share of all steps whose answer is not an action,
    and, if there are any, the numbers of steps without an answer and of answers accepted in a code fence."""
    counts = {
        "failed steps": [len(failed_steps(row)) for row in runs.values()],
        "answers in a code fence": [row["about"].get("fenced_answers", 0) for row in runs.values()],
    }
    shown = {column: of_runs for column, of_runs in counts.items() if any(of_runs)}
    table = _table("Answers that are not an action", ("% of all steps", *shown))
    for number, (name, row) in enumerate(runs.items()):
        cells = (f"{of_runs[number]:,}" for of_runs in shown.values())
        table.add_row(Text(name), f"{percent_unread(row):.1f}", *cells)
    return table


def example_line(name: str, scores: Mapping, predictions: Iterable[Prediction], language: ActionLanguage) -> str | None:
    """One answer that is not an action, with the expected one; None up to `MOST_PERCENT`, and if no answer has text."""
    if percent_unread(scores) <= MOST_PERCENT:
        return None
    row = next((row for row in predictions if row.predicted is None and row.text.strip()), None)
    if row is None:
        return None
    try:
        expected = f", expected {_quoted(language.encode(row.gold, Screen(None, row.shown, size=row.size)))}"
    except UserError:  # a language of pixels, and predictions without the size of the screen
        expected = ""
    hint = "; agent endpoint accepts code fences with code_fences: true" if in_fence(row.text) is not None else ""
    return (
        f"{name}: {percent_unread(scores):.1f} % of the answers are not an action. Example: episode "
        f"{_quoted(row.episode_id)}, step {row.step}: answer {_quoted(row.text)}{expected}{hint}"
    )


def percent_unread(scores: Mapping) -> float:
    """The percentage of all steps; the `parse_failures` of metrics are a mean over subsets, and count failed steps
    too."""
    unparsed = sum(row[UNPARSED] for row in scores["confusion"].values())
    return 100 * (unparsed - len(failed_steps(scores))) / scores["official"][OVERALL]["steps"]


def failed_steps(scores: Mapping) -> list[str]:
    """A line for each step that the agent failed to answer, such as requests that the server refused."""
    return [str(line) for line in scores.get("about", {}).get("failed_steps", ())]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…")


def online_tables(runs: Mapping[str, Mapping]) -> tuple[Table, ...]:
    """Success with its interval by subset, the rates of all tasks, and the cost; `runs` maps names to results of
    `online_scores`."""
    first = next(iter(runs.values()))
    columns = [name for name, row in first.items() if row["tasks"]]
    title = f"Success on {first[OVERALL]['tasks']} tasks, % (95 % interval below)"
    success = _table(title, [_on_lines(column) for column in columns])
    for name, rows in runs.items():
        success.add_row(Text(name), *(_rate(rows[column], "success", "interval") for column in columns))
    outcomes = _table("Outcomes of all tasks, % (95 % interval below)", [*map(words, SHARES_OF_TASKS), "goal reached"])
    for name, rows in runs.items():
        rates = (_rate(rows[OVERALL], rate, interval) for rate, interval in SHARES_OF_TASKS.items())
        outcomes.add_row(Text(name), *rates, _number(rows[OVERALL]["reached"]))
    costs = (f"{name}\n/ task" for name in ("seconds", "tokens", "calls"))
    cost = new_table("Cost", ["", "steps", "steps /\nexpert", "no\naction", *costs, "ends"], left=("ends",))
    for name, rows in runs.items():
        cost.add_row(Text(name), *_cost_cells(rows[OVERALL]))
    return success, outcomes, cost


def _rate(row: Mapping, name: str, interval: str) -> Text:
    if row[name] is None:
        return Text("–")
    low, high = row[interval]
    return Text(f"{row[name]:.1f}").append(f"\n{low:.0f}–{high:.0f}", "dim")


def _cost_cells(row: Mapping) -> list[str]:
    cost = row["cost"]
    tokens = None if cost["tokens_read"] is None else cost["tokens_read"] + cost["tokens_written"]
    ends = ", ".join(f"{count} {words(reason)}" for reason, count in row["ends"].items())
    return [
        _number(row["steps"], ".1f"),
        _number(row["steps_over_expert"], ".2f"),
        str(row["unparsed"]),
        _number(cost["seconds"], ".1f"),
        _number(tokens, ",.0f"),
        _number(cost.get("calls"), ".1f"),
        ends,
    ]
