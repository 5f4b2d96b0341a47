"""Where the errors of an agent come from that says what it touches (`action_language: { name: named }`).

    python tests/benchmarks/named_errors.py [runs/demo/evaluation/predictions.parquet] [--examples 3]

Every step falls into one row: what the expert did, and what the agent made of it. Of a tap, whether the name was that
of the element under the expert's finger, stood elsewhere on the screen, or nowhere on it; and whether the place was
right, as the strict score has it. Ends with one line of JSON: {row: [steps, percent]}.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vlm_agent.action_languages.names import NAME_SEPARATOR, spoken_name
from vlm_agent.episodes import element_at
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.scoring.strict import strictly_match

PREDICTIONS = Path("runs/demo/evaluation/predictions.parquet")


def main() -> None:
    options = parse()
    rows = defaultdict(list)
    for row in read_predictions(options.predictions):
        rows[what_happened(row)].append(row)
    steps = sum(map(len, rows.values()))
    shown = Table(title=f"{steps:,} steps: what the expert did, and what was made of it", box=None)
    for column in ("", "steps", "%"):
        shown.add_column(column, justify="right" if column else "left")
    console = Console(width=140)
    for name in sorted(rows, key=lambda name: (name.split(":")[0], -len(rows[name]))):
        shown.add_row(name, str(len(rows[name])), f"{100 * len(rows[name]) / steps:.1f}")
        for row in rows[name][: options.examples]:
            shown.add_row(f"  [dim]{row.goal}, step {row.step}: {row.text}[/dim]", "", "")
    console.print(shown)
    print(json.dumps({name: [len(told), round(100 * len(told) / steps, 2)] for name, told in rows.items()}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path, nargs="?", default=PREDICTIONS)
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="steps shown under each row")
    return parser.parse_args()


def what_happened(row: Prediction) -> str:
    """The row of the table that the step falls into."""
    gold, said = row.gold, row.predicted
    if said is None:
        return f"{gold.name}: no action"
    right = strictly_match(gold, said, row.elements)
    if said.is_tap:
        return f"{gold.name}: {_tap(row, right)}"
    if gold.is_tap and said.is_swipe:
        return f"tap: swipe instead, {_for_what(row)}"
    if said.name != gold.name:
        return f"{gold.name}: {said.name} instead"
    return f"{gold.name}: {'right' if right else 'another text or direction'}"


def _for_what(row: Prediction) -> str:
    """What a swipe was to bring where the expert tapped."""
    name, named, _ = row.text.partition(NAME_SEPARATOR)
    if not named:
        return "nothing named"
    return "for what the expert tapped" if name == _touched(row) else "for something else"


def _touched(row: Prediction) -> str | None:
    touched = element_at(row.elements, row.gold.touch_yx)
    return None if touched is None else spoken_name(touched)


def _tap(row: Prediction, right: bool) -> str:
    name, named, _ = row.text.partition(NAME_SEPARATOR)
    here = {spoken_name(element) for element in row.elements}
    if not named:
        told = "nothing named"
    elif row.gold.is_tap and _touched(row) == name:
        told = "right name"
    else:
        told = "another that is there" if name in here else "one that is nowhere on the screen"
    if row.gold.is_tap:
        return f"{told}, {'right' if right else 'wrong'} place"
    return f"tap instead, {told}"


if __name__ == "__main__":
    main()
