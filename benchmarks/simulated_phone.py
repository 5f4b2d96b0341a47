"""Speed of the simulated phone, and score ceilings that show how much its tasks need screens and history.

    python -m benchmarks.simulated_phone [--quick]

The expert plays held-out episodes on one core. The last line of output is JSON: `screens_per_second` (processor time of
screens, annotations and expert), `action_mix` and `swipe_mix` (percent), `mean_length`, `memory_share`, `blind_ceiling`
(percent, official and strict partial match; see `vlm_agent.evaluation.offline.baselines`), and `memoryless_ceiling`
over goals that need memory: the best score of an agent without history, which gives the same answer to screens of an
episode that are equal pixel by pixel.
"""

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import mean

from vlm_agent.episodes import Episode, Step
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.predictions import Prediction, predictions_for
from vlm_agent.evaluation.scoring.dialects import SCORERS, verdicts
from vlm_agent.evaluation.scoring.metrics import headline
from vlm_agent.simulator.demonstrations import simulate_episode


def percent(counts: Counter) -> dict[str, float]:
    return {name: round(100 * count / counts.total(), 1) for name, count in counts.most_common()}


def without_pixels(episode: Episode) -> Episode:
    steps = tuple(Step(None, step.action, step.elements, step.activity) for step in episode.steps)
    return Episode(episode.id, episode.subset, episode.goal, steps)


def unanswered(episode: Episode) -> list[Prediction]:
    return predictions_for(episode, [""] * len(episode), [None] * len(episode))


def memoryless_ceiling(episodes: Iterable[Episode]) -> dict[str, float]:
    """Partial match in percent by scorer, if steps of an episode with equal pixels have the same answer.

    The answer is the best of the expert's actions at these steps.
    """
    shares_by_scorer = {scorer: [] for scorer in SCORERS}
    for episode in episodes:
        by_pixels = defaultdict(list)
        for step, row in zip(episode.steps, unanswered(without_pixels(episode)), strict=True):
            by_pixels[step.screenshot.tobytes()].append(row)
        verdicts_by_answer = [
            [verdicts(constant_predictions(rows, row.gold)) for row in rows] for rows in by_pixels.values()
        ]
        for scorer, shares in shares_by_scorer.items():
            right = sum(max(verdict[scorer].sum() for verdict in answers) for answers in verdicts_by_answer)
            shares.append(right / len(episode))
    return {scorer: round(100 * mean(shares), 1) for scorer, shares in shares_by_scorer.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 episodes instead of 1,500")
    count = 100 if parser.parse_args().quick else 1500
    for seed in range(20):
        simulate_episode(seed, "train")  # fills the caches of icons and glyphs
    episodes, memory = [], []
    start = time.process_time()
    for seed in range(count):
        episode, task = simulate_episode(seed, "test")
        episodes.append(without_pixels(episode))
        memory += [seed] * task.memory
    seconds = time.process_time() - start
    steps = [step for episode in episodes for step in episode.steps]
    gold = [row for episode in episodes for row in unanswered(episode)]
    scores = headline(blind_ceiling(gold))
    again = (
        simulate_episode(seed, "test")[0] for seed in memory
    )  # simulated again, because keeping all pixels takes half a gigabyte
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
