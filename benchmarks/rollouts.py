"""Speed of online evaluation on one core: an agent's `act` on one phone, and one agent on several phones together.

    python -m benchmarks.rollouts --checkpoint RUN [--tasks 50] [--rounds 3] [--bf16]

The last line of output is JSON: steps a second of processor time, phone and trace included, for `act`, 1 and 25 phones,
their ratios to `act`, and how many of the tasks have the same answers. In float32 all have.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from vlm_agent.agents import Agent
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.evaluation.online.evaluate import Attempt, played_together
from vlm_agent.evaluation.online.runs import play
from vlm_agent.simulator.demonstrations import simulated_tasks

PHONES = (1, 25)


def answers_in(attempts: list[Attempt]) -> list[list[str]]:
    return [[step.answer for step in read_trace(attempt.folder).steps] for attempt in attempts]


def measured(agent: Agent, attempts: list[Attempt], phones: int | None) -> tuple[float, list[list[str]]]:
    """Steps a second, and the answers of each task. `phones` None: one task after the other by `act`."""
    start = time.process_time()
    if phones is None:
        for one in attempts:
            play(one.run, lambda _: agent, one.task, one.folder)
    else:
        assert not any(played_together(attempts, agent.together(), phones))
    seconds = time.process_time() - start
    answers = answers_in(attempts)
    return sum(map(len, answers)) / seconds, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="RUN")
    parser.add_argument("--tasks", type=int, default=50, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the fastest counts (default 3)")
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    agent = VlmSettings(run=options.checkpoint, bf16=options.bf16).load()
    tasks, speeds, answers = simulated_tasks(options.tasks, 0), {}, {}
    for task in tasks:
        task.solution()
    for _ in range(options.rounds):
        for phones in (None, *PHONES):
            name = "act" if phones is None else f"{phones} phones"
            agent = VlmSettings(run=options.checkpoint, bf16=options.bf16).load()  # with no screen in memory
            with tempfile.TemporaryDirectory() as folder:
                attempts = [Attempt(name, number, task, Path(folder), False, name) for number, task in enumerate(tasks)]
                speed, answers[name] = measured(agent, attempts, phones)
            speeds[name] = max(speed, speeds.get(name, 0.0))
    ratios = {name: round(speed / speeds["act"], 2) for name, speed in speeds.items()}
    same = {name: sum(a == b for a, b in zip(found, answers["act"], strict=True)) for name, found in answers.items()}
    print(json.dumps({"steps_per_second": {k: round(v, 1) for k, v in speeds.items()}, "ratios": ratios, "same": same}))


if __name__ == "__main__":
    main()
