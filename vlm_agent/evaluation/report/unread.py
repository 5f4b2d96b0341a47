"""Answers that are not an action, on the terminal: their share, and an example where it is high."""

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.endpoint import in_fence
from vlm_agent.episodes import Screen
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.scoring.metrics import OVERALL, UNPARSED
from vlm_agent.files.console import new_table

MOST_PERCENT = 5.0
"""An example is shown above this share of parse failures."""

_CHARACTERS = 120


def parse_failure_table(runs: Mapping[str, Mapping]) -> Table:
    """A row for each run of `runs` (results of `metrics.score`): the share of all steps whose answer is not an action,
    and, if there are any, the numbers of steps without an answer and of answers accepted in a code fence."""
    counts = {
        "failed steps": [len(failed_steps(row)) for row in runs.values()],
        "answers in a code fence": [row["about"].get("fenced_answers", 0) for row in runs.values()],
    }
    shown = {column: of_runs for column, of_runs in counts.items() if any(of_runs)}
    table = new_table("Answers that are not an action", ("", "parse failures, %", *shown))
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
    expected = language.encode(row.gold, Screen(None, row.elements))
    hint = "; agent endpoint accepts code fences with code_fences: true" if in_fence(row.text) is not None else ""
    return (
        f"{name}: {percent_unread(scores):.1f} % of the answers are not an action. Example: episode "
        f"{_quoted(row.episode_id)}, step {row.step}: answer {_quoted(row.text)}, expected {_quoted(expected)}{hint}"
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
