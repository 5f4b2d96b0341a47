"""One agent's answers under nine published scorers of AndroidControl: the picture of README.

    PYTHONPATH=.:tests/golden python -m studies.scorers [--draw docs/scorers.svg]

`agent_a.jsonl.gz` holds 5,103 steps of AndroidControl's test split with the answers of a made-up agent. Each scorer
reads the boxes that its published code reads; `tests/golden/agents_2025.py whole_set` compares the counts with those
of that code. Prints a row for each scorer as JSON.
"""

import argparse
import json
from pathlib import Path

import agents_2025 as golden

from vlm_agent.evaluation.scoring.controls import android_control
from vlm_agent.evaluation.spread import spread

AGENT = Path(__file__).with_name("agent_a.jsonl.gz")
LEFT, WIDTH, ROW = 96, 440, 24
"""Pixels: of the names, of 100 %, and of a scorer."""


def rows() -> dict[str, dict]:
    """The row of each scorer (`spread.spread`), the lowest step success first."""
    steps = golden.read(str(AGENT))
    found = {name: spread(list(golden._steps(steps, name)), [name])[name] for name in android_control.DIALECTS}
    return dict(sorted(found.items(), key=lambda item: item[1]["step_success"]))


def picture(found: dict[str, dict]) -> str:
    height = ROW * (len(found) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 80} {height}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>'
    ]
    for place, (name, row) in enumerate(found.items()):
        top = ROW * place + 8
        low, high = (_x(value) for value in row["interval"])
        success, blind = _x(row["step_success"]), _x(row["blind_ceiling"])
        parts += [
            f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end" fill="#222">{name}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{success - LEFT:.1f}" height="16" fill="#99c1f1"/>',
            f'<path d="M{low:.1f} {top + 8}H{high:.1f}" stroke="#1a5fb4" stroke-width="2"/>',
            f'<path d="M{blind:.1f} {top - 2}V{top + 18}" stroke="#c64600" stroke-width="2"/>',
            f'<text x="{max(high, blind) + 6:.1f}" y="{top + 12}" fill="#222">{row["step_success"]:.1f} %</text>',
        ]
    bottom = ROW * len(found) + 8
    for value in (0, 25, 50, 75, 100):
        parts.append(f'<text x="{_x(value)}" y="{bottom + 12}" text-anchor="middle" fill="#222">{value}</text>')
    parts.append(
        f'<text x="{LEFT}" y="{bottom + 32}" fill="#222">step success with its 95 % interval; '
        '<tspan fill="#c64600">blind ceiling</tspan></text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _x(percent: float) -> float:
    return LEFT + percent * WIDTH / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=Path, metavar="SVG")
    options = parser.parse_args()
    found = rows()
    if options.draw is not None:
        options.draw.write_text(picture(found), encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
