"""Episodes of the simulated phone in a folder that all methods read: `episodes.json` and `screens.npy`.

Only numpy is imported at the top.
"""

import itertools
import json
from pathlib import Path

import numpy as np

STEPS = 8


def write_episodes(folder: Path, count: int, size: tuple[int, int], steps: int = STEPS) -> list[str]:
    """Writes `count` episodes of exactly `steps` steps, truncating longer ones; returns their texts for a tokenizer."""
    from vlm_agent.action_languages.binned import BinnedLanguage
    from vlm_agent.simulator.demonstrations import simulate_episode

    every = (simulate_episode(seed, "train", size)[0] for seed in itertools.count())
    chosen = list(itertools.islice((episode for episode in every if len(episode) >= steps), count))
    language = BinnedLanguage()
    rows = [
        {"goal": episode.goal, "actions": [language.encode(step.action, step.screen) for step in episode.steps[:steps]]}
        for episode in chosen
    ]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "screens.npy", np.stack([[s.screenshot for s in e.steps[:steps]] for e in chosen]))
    (folder / "episodes.json").write_text(json.dumps(rows), encoding="utf-8")
    return [text for row in rows for text in (row["goal"], *row["actions"])]


def read_rows(folder: Path) -> list[tuple[dict, np.ndarray]]:
    """Each episode's `goal` and `actions` (as text), with its screens, uint8 (steps, height, width, 3)."""
    rows = json.loads((folder / "episodes.json").read_text(encoding="utf-8"))
    return list(zip(rows, np.load(folder / "screens.npy", mmap_mode="r"), strict=True))


def read_episodes(folder: Path) -> list:
    """The same as Episodes of vlm_agent."""
    from vlm_agent.action_languages.binned import BinnedLanguage
    from vlm_agent.episodes import Episode, Step

    language = BinnedLanguage()
    return [
        Episode(
            str(number),
            "general",
            row["goal"],
            tuple(Step(np.array(s), language.decode(text)) for s, text in zip(screens, row["actions"], strict=True)),
        )
        for number, (row, screens) in enumerate(read_rows(folder))
    ]
