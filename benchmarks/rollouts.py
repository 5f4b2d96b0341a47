"""Speed of online evaluation on one core: an agent's `act` on one phone, and one agent on several phones together.

    python -m benchmarks.rollouts --checkpoint RUN [--tasks 50] [--rounds 3] [--bf16]
    python -m benchmarks.rollouts --checkpoint RUN --update [--tasks 4] [--rounds 3] [--bf16]

The last line of output is JSON: steps a second of processor time, phone and trace included, for `act`, 1 and 25 phones,
and 8 rollouts a task as reinforcement plays them, without traces; their ratios to `act`; and how many of the tasks have
the same answers. In float32 all have.

`--update` plays each task 8 times, as reinforcement does, and learns every answer. Its JSON: seconds of processor time
of the rollouts, of a forward and a backward pass over all answers as branches of one sentence for each rollout
(`reinforcement/sentences.py`), and over a sentence for each answer that the history does not repeat; and their tokens.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from vlm_agent.agents import Agent
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.evaluation.online.evaluate import Attempt, played_together
from vlm_agent.evaluation.online.runs import play
from vlm_agent.models.family import processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.recipe.run import read_recipe
from vlm_agent.reinforcement import rollouts
from vlm_agent.reinforcement.rounds import WAVE
from vlm_agent.reinforcement.sentences import Scored, collated, dealt, scored
from vlm_agent.sentences.image_sizes import CachedScreens
from vlm_agent.simulator.demonstrations import simulated_tasks

PHONES = (1, 25)
GROUP = 8
RECIPE = Path(__file__).resolve().parents[1] / "recipes/phone_vlm_tiny_grpo.yaml"
ROLLOUTS_A_ROW = 5
"""160 rollouts in 30 rows, as in the recipe."""


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


def with_screens_in_memory(agent: VlmAgent) -> VlmAgent:
    return replace(agent, sentences=replace(agent.sentences, screens=CachedScreens(agent.sentences.screens)))


def in_groups(agent: VlmAgent, tasks: int, temperature: float) -> tuple[float, list[rollouts.Rollout]]:
    """Seconds of 8 rollouts of each of `tasks` training tasks, in waves, and the rollouts."""
    names = [task.name for task in simulated_tasks(tasks, 0, "train")]
    for name in names:
        rollouts.task_at(name).solution()
    pairs = [(name, sample) for name in names for sample in range(GROUP)]
    waves = [pairs[at : at + WAVE] for at in range(0, len(pairs), WAVE)]
    start = time.process_time()
    played = [one for wave in waves for one in rollouts.play(agent, wave, temperature, "")]
    return time.process_time() - start, played


def apart(*columns: list) -> list[Scored]:
    """`scored` with a sentence for each answer that the last prompt does not repeat."""
    *rows, last = zip(*columns, strict=True)
    is_branch = [bool(scored(*zip(row, last, strict=True))[0].sentence.branches) for row in rows]
    trunk = [row for row, branches in zip(rows, is_branch, strict=True) if not branches]
    others = [row for row, branches in zip(rows, is_branch, strict=True) if branches]
    return [one for part in ([*trunk, last], *([row] for row in others)) for one in scored(*zip(*part, strict=True))]


def learned(model: torch.nn.Module, sentences: list[Scored], rows: int, temperature: float, bf16: bool) -> dict:
    """Seconds of a forward and a backward pass over the sentences in so many rows, and what they hold."""
    processor, start = processor_of(model.config), time.process_time()
    for row in dealt(sentences, rows, ""):
        batch = collated(row, processor, temperature, (0.2, 0.28))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(**{key: value for key, value in batch.items() if key not in NOT_FOR_MODELS}).loss
        loss.backward()
    counted = {"tokens": "input_ids", "screens": "screens", "branches": "branches"}
    return {"seconds": time.process_time() - start} | {
        name: sum(len(getattr(one.sentence, part)) for one in sentences) for name, part in counted.items()
    }


def updates(options: argparse.Namespace) -> dict[str, dict]:
    """The figures of `--update`."""
    recipe = read_recipe(RECIPE, {"model.base": options.checkpoint})
    assert recipe.reinforcement is not None
    temperature = recipe.reinforcement.temperature
    agent = with_screens_in_memory(VlmSettings(run=options.checkpoint, bf16=options.bf16).load())
    columns = []
    seconds, played = in_groups(agent, options.tasks, temperature)
    found = {"rollouts": {"seconds": seconds, "answers": sum(len(one.answers) for one in played)}}
    for one in played:
        prompts = [prompt.sentence for prompt, _ in rollouts.replayed(one, agent)]
        columns.append((prompts, one.answers, [0] * len(prompts), [0.5] * len(prompts)))
    model = choose_trained_weights(agent.model, recipe.model.train, recipe.model.lora).train()
    for name, sentences_of in [("branches", scored), ("apart", apart)] * options.rounds:
        sentences = [one for rollout in columns for one in sentences_of(*rollout)]
        figures = learned(model, sentences, len(played) // ROLLOUTS_A_ROW, temperature, options.bf16)
        found[name] = min(figures, found.get(name, figures), key=lambda one: one["seconds"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="RUN")
    parser.add_argument("--tasks", type=int, default=50, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the fastest counts (default 3)")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--update", action="store_true", help="measure rollouts and their update instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.update:
        print(json.dumps(updates(options)))
        return
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
        agent = with_screens_in_memory(VlmSettings(run=options.checkpoint, bf16=options.bf16).load())
        seconds, played = in_groups(agent, max(1, options.tasks // GROUP), temperature=1.0)
        speed = sum(len(one.answers) for one in played) / seconds
        speeds["groups of 8"] = max(speed, speeds.get("groups of 8", 0.0))
    ratios = {name: round(speed / speeds["act"], 2) for name, speed in speeds.items()}
    same = {name: sum(a == b for a, b in zip(found, answers["act"], strict=True)) for name, found in answers.items()}
    print(json.dumps({"steps_per_second": {k: round(v, 1) for k, v in speeds.items()}, "ratios": ratios, "same": same}))


if __name__ == "__main__":
    main()
