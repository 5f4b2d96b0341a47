"""Chats that train one text model on every mode of the planner (`dynamic_planning`).

    vlm-agent simulate --thoughts --output SIMULATED --episodes 250
    python tests/benchmarks/planner_chats.py --shards SIMULATED/shards --output CHATS [--modes none d_pot] [--limit N]
    vlm-agent train --config RECIPE --data.sentences chat --data.chats CHATS

`vlm-agent chats` for each mode, with its default settings; reflexion judges itself, and react shows 0, 1, 2, 4 or all
earlier rounds, by episode. OUT/MODE.jsonl has one chat for each reply; the same input writes the same bytes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.errors import UserError
from vlm_agent.files import atomic_write

OPTIONS: dict[str, dict[str, Any]] = {"reflexion": {"feedback": "own"}}
"""Settings of modes beside the defaults."""

ROUNDS = (0, 1, 2, 4, "all")
"""Earlier rounds that react shows, from episode to episode."""


def chats_of(mode: str, episodes: Sequence[Episode]) -> list[dict]:
    """The chats of one mode, as rows of JSON lines. Raises DatasetError for a step without a plan."""
    chats = []
    for number, episode in enumerate(episodes):
        options = OPTIONS.get(mode, {}) | ({"rounds": ROUNDS[number % len(ROUNDS)]} if mode == "react" else {})
        settings = DynamicPlanningSettings(
            mode=mode, endpoint="http://localhost:1", model="none", screen="html", **options
        )
        chats += [{"messages": messages} for messages in settings.lessons([episode])]
    return chats


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="shards with plans")
    parser.add_argument("--split", default="train")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for MODE.jsonl")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="episodes, spread evenly over the split, whose shards hold one subset after the other (default: all)",
    )
    options = parser.parse_args(words)
    try:
        shards = ShardDataset(options.shards, split=options.split)
        count = len(shards) if options.limit is None else min(options.limit, len(shards))
        episodes = [shards.without_pixels(number * len(shards) // count) for number in range(count)]
        for mode in options.modes:
            chats = chats_of(mode, episodes)
            path = options.output / f"{mode}.jsonl"
            with atomic_write(path) as temporary:
                lines = (json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats)
                temporary.write_text("".join(lines), encoding="utf-8")
            print(f"{path}: {len(chats):,} chats of {len(episodes):,} episodes")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
