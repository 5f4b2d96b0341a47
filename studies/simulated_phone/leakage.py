"""Leakage between the splits of the simulated phone: goals, phones, episode ids and screens that train contains too.

    python -m studies.simulated_phone.leakage [--quick]

Simulates the same episodes as `vlm-agent simulate`. The last line of output is JSON, with these counts for validation
and test: `goals` that train contains too, up to case and white space, and `episodes_by_goal`, the episodes with such a
goal; shared `phones` (the seeds of themes, apps and contents); shared `episode_ids`; `screens` that are equal to a
screen of train by a hash of their pixels, and `screen_kinds`, the distinct ones of these. Screens without details, such
as a blank page, may be equal. A shared goal, phone or id is an error: the exit status is 1.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from vlm_agent.datasets.statistics.leakage import find_leaks
from vlm_agent.simulator import SPLITS, sample_task
from vlm_agent.simulator.demonstrations import phone_seed, simulate_episode, subset_of

SHARES = {"train": 8, "validation": 1, "test": 1}
MUST_BE_ZERO = ("goals", "episodes_by_goal", "phones", "episode_ids")


@dataclass
class Held:
    """The goals, phones, ids and screen hashes of a split."""

    goals: list[str] = field(default_factory=list)
    phones: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    screens: Counter = field(default_factory=Counter)


def gather(split: str, episodes: int, drawn: int) -> Held:
    """Simulates `episodes` episodes; only the first `drawn` have screens, because drawing takes most of the time."""
    held = Held()
    for seed in range(episodes):
        number = phone_seed(seed, split)
        held.phones.add(number)
        if seed < drawn:
            episode, task = simulate_episode(seed, split)
            held.screens.update(hashlib.sha256(step.screenshot.tobytes()).digest() for step in episode.steps)
            held.ids.add(episode.id)
        else:
            task = sample_task(subset_of(number), split, number)
            held.ids.add(str(number))
        held.goals.append(task.goal)
    return held


def shared_with_train(train: Held, split: str, held: Held) -> dict:
    goals = np.array([*train.goals, *held.goals], object)
    splits = np.array(["train"] * len(train.goals) + [split] * len(held.goals), object)
    leak = find_leaks(goals, splits)[split]
    same = {screen: count for screen, count in held.screens.items() if screen in train.screens}
    return {
        "episodes": len(held.goals),
        "goals": leak.goals_seen,
        "episodes_by_goal": leak.episodes_seen,
        "phones": len(train.phones & held.phones),
        "episode_ids": len(train.ids & held.ids),
        "screens": sum(same.values()),
        "screen_kinds": len(same),
        "of_screens": held.screens.total(),
        "screens_percent": round(100 * sum(same.values()) / held.screens.total(), 3),
    }


def leakage(episodes: int, drawn: int) -> dict:
    """Figures by held-out split.

    `episodes` and `drawn`: the numbers for validation and for test; train has 8 times as many.
    """
    held = {split: gather(split, SHARES[split] * episodes, SHARES[split] * drawn) for split in SPLITS}
    shared = {split: shared_with_train(held["train"], split, held[split]) for split in SPLITS if split != "train"}
    return {"train_episodes": len(held["train"].goals), **shared}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 episodes instead of 16,000, 250 of them drawn")
    quick = parser.parse_args().quick
    figures = leakage(*(100, 25) if quick else (1600, 250))
    print(json.dumps(figures))
    return int(any(figures[split][what] for split in ("validation", "test") for what in MUST_BE_ZERO))


if __name__ == "__main__":
    sys.exit(main())
