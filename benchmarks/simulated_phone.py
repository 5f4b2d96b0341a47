"""Speed of the simulated phone, score ceilings that show how much its tasks need screens and history, and shortcuts.

    python -m benchmarks.simulated_phone [--quick]
    python -m benchmarks.simulated_phone --judge

The expert plays held-out episodes on one core. The last line of output is JSON: `screens_per_second` (processor time of
screens, annotations and expert), `action_mix` and `swipe_mix` (percent), `mean_length`, `memory_share`, `blind_ceiling`
(percent, official and strict partial match; see `vlm_agent.evaluation.offline.baselines`), and `memoryless_ceiling`
over goals that need memory: the best score of an agent without history, which gives the same answer to screens of an
episode that are equal pixel by pixel.

`--judge` prints what an agent gets without skill instead: on 3,000 training tasks, how many goals are reached at the
start, and after the expert's actions; on 600 of them, the percentage that random actions reach within the steps of an
agent, where a run stops as soon as the goal is reached; and the milliseconds of a fork of each phone after its run.
"""

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from vlm_agent.devices.acting.episode import allowed_steps
from vlm_agent.episodes import Action, Episode, without_pixels
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.predictions import Prediction, predictions_for
from vlm_agent.evaluation.scoring.dialects import SCORERS, verdicts
from vlm_agent.evaluation.scoring.metrics import headline
from vlm_agent.simulator import SimulatedPhone, Task
from vlm_agent.simulator.demonstrations import simulate_episode, simulated_tasks
from vlm_agent.simulator.opening import SimulatedTask


def percent(counts: Counter) -> dict[str, float]:
    return {name: round(100 * count / counts.total(), 1) for name, count in counts.most_common()}


def unanswered(episode: Episode) -> list[Prediction]:
    return predictions_for(episode, [""] * len(episode), [None] * len(episode))


def memoryless_ceiling(episodes: Iterable[Episode]) -> dict[str, float]:
    """Partial match in percent by scorer, if steps of an episode with equal pixels have the same answer.

    The answer is the best of the expert's actions at these steps.
    """
    shares_by_scorer = {scorer: [] for scorer in SCORERS}
    for episode in episodes:
        by_pixels = defaultdict(list)
        for step, row in zip(episode.steps, unanswered(episode), strict=True):
            by_pixels[step.screenshot.tobytes()].append(row)
        verdicts_by_answer = [
            [verdicts(constant_predictions(rows, row.gold)) for row in rows] for rows in by_pixels.values()
        ]
        for scorer, shares in shares_by_scorer.items():
            right = sum(max(verdict[scorer].sum() for verdict in answers) for answers in verdicts_by_answer)
            shares.append(right / len(episode))
    return {scorer: round(100 * mean(shares), 1) for scorer, shares in shares_by_scorer.items()}


def random_action(phone: SimulatedPhone, rng: random.Random) -> Action:
    """A tap on a random target, or another random action."""
    targets = phone.canvas().targets
    if targets and rng.random() < 0.7:
        aim = rng.choice(targets).aim
        y, x = ((aim[edge] + aim[edge + 2]) / 2 / phone.size[edge - 1] for edge in (1, 0))
        return Action.tap(min(max(0.0, y), 1.0), min(max(0.0, x), 1.0))
    swipe = Action.swipe((rng.random(), rng.random()), (rng.random(), rng.random()))
    named = Action.open_app(rng.choice(phone.installed))
    return rng.choice([swipe, named, Action.type_text("red"), *map(Action.press, ("back", "home", "enter"))])


@dataclass
class Judged:
    """How many tasks were looked at, and in how many the goal was reached."""

    tasks: int = 0
    at_start: int = 0
    by_expert: int = 0
    random_tasks: int = 0
    at_random: int = 0
    fork_seconds: float = 0.0


def judged(tasks: Sequence[SimulatedTask], at_random: int) -> Judged:
    """`at_random`: of how many tasks, from the first, random actions are tried."""
    found = Judged(len(tasks), random_tasks=min(at_random, len(tasks)))
    for number, task in enumerate(tasks):
        phone, goal = task.fresh_phone()
        found.at_start += goal.reached(phone)
        steps = len(goal.solve(phone, pixels=False))
        found.by_expert += goal.reached(phone)
        if number < at_random:
            phone, goal = task.fresh_phone()
            found.at_random += is_reached_at_random(phone, goal, allowed_steps(steps))
            start = time.process_time()
            phone.fork()
            found.fork_seconds += time.process_time() - start
    return found


def is_reached_at_random(phone: SimulatedPhone, goal: Task, steps: int) -> bool:
    """Whether at most `steps` random actions reach the goal at any moment."""
    rng = random.Random(f"actions {phone.seed}")
    for _ in range(steps):
        phone.perform(random_action(phone, rng))
        if goal.reached(phone):
            return True
    return False


def print_judged() -> None:
    found = judged(simulated_tasks(3000, 0, "train"), 600)
    figures = {
        "tasks": found.tasks,
        "reached_at_start": found.at_start,
        "reached_by_expert": found.by_expert,
        "reached_at_random": round(100 * found.at_random / found.random_tasks, 1),
        "fork_milliseconds": round(1000 * found.fork_seconds / found.random_tasks, 2),
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 episodes instead of 1,500")
    parser.add_argument("--judge", action="store_true", help="what is reached without skill, instead")
    options = parser.parse_args()
    if options.judge:
        print_judged()
        return
    count = 100 if options.quick else 1500
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
    # Simulated again, because keeping all pixels takes half a gigabyte.
    again = (simulate_episode(seed, "test")[0] for seed in memory)
    figures = {
        "episodes": count,
        "screens_per_second": round(len(steps) / seconds),
        "action_mix": percent(Counter(step.action.name for step in steps)),
        "swipe_mix": percent(Counter(step.action.direction for step in steps if step.action.is_swipe)),
        "mean_length": round(len(steps) / count, 2),
        "memory_share": round(100 * len(memory) / count, 1),
        "blind_ceiling": headline(blind_ceiling(gold)),
        "memoryless_ceiling": memoryless_ceiling(again),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
