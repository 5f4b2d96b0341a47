"""How fast the simulated phone draws, and whether it is worth solving.

    python tests/benchmarks/simulated_phone.py [--quick]

Plays held-out episodes with the expert on one core and prints, last, one line of JSON: `screens_per_second` (of
processor time; the screen, its annotations and the expert's part included), `action_mix` and `swipe_mix` (percent),
`mean_length`, `memory_share`, the `blind_ceiling` (percent, official and strict partial match; see
`vlm_agent.evaluation.offline.baselines`), and, of goals that need memory, the `memoryless_ceiling`: what an agent
could reach that knows all but what it saw and did before, so that a screen which comes again, pixel for pixel, is
answered alike.
"""

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import mean

from vlm_agent.datasets.simulate import simulate_episode
from vlm_agent.episodes import Episode, Step
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.predictions import Prediction, predictions_for
from vlm_agent.evaluation.scoring.dialects import SCORERS, verdicts
from vlm_agent.evaluation.scoring.metrics import headline


def percent(counts: Counter) -> dict[str, float]:
    return {name: round(100 * count / counts.total(), 1) for name, count in counts.most_common()}


def without_pixels(episode: Episode) -> Episode:
    steps = tuple(Step(None, step.action, step.elements, step.activity) for step in episode.steps)
    return Episode(episode.id, episode.subset, episode.goal, steps)


def unanswered(episode: Episode) -> list[Prediction]:
    return predictions_for(episode, [""] * len(episode), [None] * len(episode))


def memoryless_ceiling(episodes: Iterable[Episode]) -> dict[str, float]:
    """Partial match in percent by scorer, when all steps of an episode that look alike have the best of the expert's
    answers to them."""
    reached = {scorer: [] for scorer in SCORERS}
    for episode in episodes:
        alike = defaultdict(list)
        for step, row in zip(episode.steps, unanswered(without_pixels(episode)), strict=True):
            alike[step.screenshot.tobytes()].append(row)
        answered = [[verdicts(constant_predictions(rows, row.gold)) for row in rows] for rows in alike.values()]
        for scorer, shares in reached.items():
            right = sum(max(verdict[scorer].sum() for verdict in answers) for answers in answered)
            shares.append(right / len(episode))
    return {scorer: round(100 * mean(shares), 1) for scorer, shares in reached.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 episodes instead of 1,500")
    count = 100 if parser.parse_args().quick else 1500
    for seed in range(20):
        simulate_episode(seed, "train")  # fills the caches of icons and type
    episodes, memory = [], []
    began = time.process_time()
    for seed in range(count):
        episode, task = simulate_episode(seed, "test")
        episodes.append(without_pixels(episode))
        memory += [seed] * task.memory
    seconds = time.process_time() - began
    steps = [step for episode in episodes for step in episode.steps]
    gold = [row for episode in episodes for row in unanswered(episode)]
    scores = headline(blind_ceiling(gold))
    again = (simulate_episode(seed, "test")[0] for seed in memory)  # all their pixels would be half a gigabyte
    print(
        json.dumps(
            {
                "episodes": count,
                "screens_per_second": round(len(steps) / seconds),
                "action_mix": percent(Counter(step.action.name for step in steps)),
                "swipe_mix": percent(Counter(step.action.direction for step in steps if step.action.is_swipe)),
                "mean_length": round(len(steps) / count, 2),
                "memory_share": round(100 * len(memory) / count, 1),
                "blind_ceiling": scores,
                "memoryless_ceiling": memoryless_ceiling(again),
            }
        )
    )


if __name__ == "__main__":
    main()
