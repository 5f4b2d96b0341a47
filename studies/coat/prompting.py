"""The cost of a step of the prompting agent (agent `coat`): calls, and tokens read and written, by mode.

    python -m studies.coat.prompting [--aitz FOLDER] [--episodes 100] [--price 2.5 10] [--quick]

Screens: the episodes of Android in the Zoo in FOLDER (by default the published one), and simulated demonstrations with
their texts. No model is asked: the requests are those of the agent, and their tokens are estimated
(`vlm_agent/agents/llm/cost.py`): 4 bytes of text and 28 x 28 pixels of a picture are a token, and replies are as long
as the recorded texts of the published episode. `of pictures`: their part of the tokens read. Money is for 1,000 steps,
at `--price` per million tokens read and written. The last line of output is JSON.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table

from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.agents.llm.cost import Expense, Price, amount, picture_tokens
from vlm_agent.datasets.sources import EpisodeStep
from vlm_agent.datasets.sources.aitz import read_steps
from vlm_agent.episodes import Episode
from vlm_agent.simulator.demonstrations import simulate_episode

ROOT = Path(__file__).resolve().parents[2]
AITZ = ROOT.parent / "shared/data/aitz_episode"
ROWS: dict[str, dict] = {
    "coa": {"mode": "coa"},
    "coa, marks": {"mode": "coa", "elements": "marks"},
    "cot": {"mode": "cot"},
    "cot, marks": {"mode": "cot", "elements": "marks"},
    "coat, recorded texts": {"mode": "coat"},
    "coat, recorded texts, marks": {"mode": "coat", "elements": "marks"},
    "coat, texts of the phone": {"mode": "coat", "texts": "phone"},
    "coat, texts of the model": {"mode": "coat", "texts": "model"},
}


def real(folder: Path) -> list[Episode]:
    """The episodes of AitZ files in a folder and its subfolders."""
    episodes = []
    for path in sorted(folder.rglob("*.json")):
        entries = [entry for entry in read_steps(path) if isinstance(entry, EpisodeStep)]
        first = entries[0]
        episodes.append(Episode(first.episode_id, first.subset, first.goal, tuple(entry.step for entry in entries)))
    return episodes


def simulated(count: int) -> Iterator[Episode]:
    for seed in range(count):
        yield simulate_episode(seed, "test", thoughts=True)[0]


def cost(episodes: list[Episode], settings: dict) -> Expense:
    with TemporaryDirectory() as folder:
        agent = CoatAgentSettings(endpoint="http://localhost:1", model="none", calls=folder, **settings).load()
        return sum((agent.expected([episode]) for episode in episodes), Expense())


def pictures(episodes: list[Episode], settings: dict) -> int:
    """Tokens of the pictures of all requests: what is left out when every screen is one pixel."""
    point = np.zeros((1, 1, 3), np.uint8)
    small = [
        replace(episode, steps=tuple(replace(step, screenshot=point) for step in episode.steps)) for episode in episodes
    ]
    with_screens, without = cost(episodes, settings), cost(small, settings)
    return with_screens.read - without.read


def figures(episodes: list[Episode], settings: dict, price: Price) -> dict[str, float]:
    total, steps = cost(episodes, settings), sum(map(len, episodes))
    return {
        "calls": total.calls / steps,
        "read": total.read / steps,
        "pictures": pictures(episodes, settings) / steps,
        "written": total.written / steps,
        "money": 1000 * total.money(price) / steps,
    }


def table(title: str, rows: dict[str, dict[str, float]]) -> Table:
    shown = Table(title=title, title_justify="left")
    shown.add_column("a step of")
    for name in ("calls", "tokens read", "of pictures", "written", "1,000 steps"):
        shown.add_column(name, justify="right")
    for name, row in rows.items():
        counts = (f"{row[key]:,.0f}" for key in ("read", "pictures", "written"))
        shown.add_row(name, f"{row['calls']:.2f}", *counts, amount(row["money"]))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aitz", type=Path, default=AITZ, metavar="FOLDER", help="episodes of Android in the Zoo")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="simulated episodes (default 100)")
    parser.add_argument("--price", type=float, nargs=2, default=(2.5, 10.0), metavar=("READ", "WRITTEN"))
    parser.add_argument("--quick", action="store_true", help="5 simulated episodes")
    options = parser.parse_args()
    price = Price(read=options.price[0], written=options.price[1])
    sources = {"Android in the Zoo": real(options.aitz)} if options.aitz.is_dir() else {}
    sources["simulated phone"] = list(simulated(5 if options.quick else options.episodes))
    console, record = Console(), {"price": list(options.price)}
    for name, episodes in sources.items():
        rows = {row: figures(episodes, settings, price) for row, settings in ROWS.items()}
        steps = [step for episode in episodes for step in episode.steps]
        height, width = steps[0].size
        title = f"{name}: {len(episodes)} episodes, {len(steps)} steps, screens such as {height} x {width} pixels"
        console.print(table(f"{title} ({picture_tokens((height, width))} tokens)", rows))
        record[name] = {"episodes": len(episodes), "steps": len(steps), "rows": rows}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
