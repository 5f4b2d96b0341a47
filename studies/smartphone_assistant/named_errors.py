"""Error analysis of an agent with the named action language (`action_language: { name: named }`).

    python -m studies.smartphone_assistant.named_errors [runs/demo/evaluation/predictions.parquet] [--examples 3]

Each step is counted in one row, by the expert's action and the kind of the agent's answer. Taps are divided by their
name (that of the element that the expert tapped, of another element on the screen, or of none), and by their place
(right or wrong by the strict scorer). The last line of output is JSON: {row: [steps, percent]}.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.action_languages.names import NAME_SEPARATOR, spoken_name
from vlm_agent.episodes import element_at
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.scoring.dialects import verdicts

PREDICTIONS = Path("runs/demo/evaluation/predictions.parquet")


def main() -> None:
    options = parse()
    rows = defaultdict(list)
    for row in read_predictions(options.predictions):
        rows[category(row)].append(row)
    steps = sum(map(len, rows.values()))
    shown = Table(title=f"{steps:,} steps by the expert's action and the agent's answer", box=None)
    for column in ("", "steps", "%"):
        shown.add_column(column, justify="right" if column else "left")
    console = Console(width=140)
    for name in sorted(rows, key=lambda name: (name.split(":")[0], -len(rows[name]))):
        shown.add_row(name, str(len(rows[name])), f"{100 * len(rows[name]) / steps:.1f}")
        for row in rows[name][: options.examples]:
            shown.add_row(Text(f"  {row.goal}, step {row.step}: {row.text}", style="dim"), "", "")
    console.print(shown)
    print(json.dumps({name: [len(group), round(100 * len(group) / steps, 2)] for name, group in rows.items()}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path, nargs="?", default=PREDICTIONS)
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="steps shown under each row")
    return parser.parse_args()


def category(row: Prediction) -> str:
    """The row of the table that the step is counted in."""
    gold, predicted = row.gold, row.predicted
    if predicted is None:
        return f"{gold.name}: no action"
    right = bool(verdicts([row], ["strict"])["strict"][0])
    if predicted.is_tap:
        return f"{gold.name}: {_tap(row, right)}"
    if gold.is_tap and predicted.is_swipe:
        return f"tap: swipe instead, {_swipe_target(row)}"
    if predicted.name != gold.name:
        return f"{gold.name}: {predicted.name} instead"
    return f"{gold.name}: {'right' if right else 'another text or direction'}"


def _swipe_target(row: Prediction) -> str:
    """The target that a swipe names where the expert tapped."""
    name, separator, _ = row.text.partition(NAME_SEPARATOR)
    if not separator:
        return "nothing named"
    return "for what the expert tapped" if name == _touched_name(row) else "for something else"


def _touched_name(row: Prediction) -> str | None:
    element = element_at(row.elements, row.gold.touch_yx)
    return None if element is None else spoken_name(element)


def _tap(row: Prediction, right: bool) -> str:
    name, separator, _ = row.text.partition(NAME_SEPARATOR)
    here = {spoken_name(element) for element in row.elements}
    if not separator:
        kind = "nothing named"
    elif row.gold.is_tap and _touched_name(row) == name:
        kind = "right name"
    else:
        kind = "another that is there" if name in here else "one that is nowhere on the screen"
    if row.gold.is_tap:
        return f"{kind}, {'right' if right else 'wrong'} place"
    return f"tap instead, {kind}"


if __name__ == "__main__":
    main()
