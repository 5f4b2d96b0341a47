"""Table 5's columns: seconds a screen and a step, peak memory and parameters of an agent, in a process of its own.

    python -m studies.auto_ui.cost RUN SHARDS [--steps 40]

Acts on recorded steps one by one, as on a phone, after the demonstrated history. The last line of output is JSON.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

WARM_UP = 3


def cost_of(run: Path, shards: Path, steps: int) -> dict:
    """The figures of a finished run."""
    words = [sys.executable, "-m", "studies.auto_ui.cost", str(run), str(shards), "--steps", str(steps)]
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("shards", type=Path)
    parser.add_argument("--steps", type=int, default=40, metavar="N")
    print(json.dumps(_measure(parser.parse_args())))


def _measure(options: argparse.Namespace) -> dict:
    from rich.console import Console

    from vlm_agent.agents.agent import Turn
    from vlm_agent.agents.loading import agent_settings, load_agent
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.models.weights.precision import has_bf16

    overrides = {"bf16": True} if has_bf16() else {}
    settings = agent_settings(checkpoint=str(options.run), overrides=overrides)
    agent = load_agent(settings, Console(stderr=True))
    dataset = ShardDataset(options.shards, split="test")
    seconds: list[float] = []
    screens: list[np.ndarray] = []
    index = 0
    while len(seconds) < options.steps + WARM_UP:
        episode = dataset[index]
        history: list[Turn] = []
        for step in episode.steps:
            start = time.perf_counter()
            agent.act(episode.goal, history, step.screen)
            seconds.append(time.perf_counter() - start)
            screens.append(step.screenshot)
            history.append(Turn(step.screen, None, step.action))
        index += 1
    features = _feature_seconds(options.run, screens[: options.steps])
    whole = median(seconds[WARM_UP:])
    return {
        "agent": settings.agent,
        "seconds a screen (features)": features,
        "seconds a step": round(whole, 4),
        "seconds a step without features": None if features is None else round(whole - features, 4),
        "peak memory, GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
        "parameters, M": round(_parameters(options.run) / 1e6, 2),
        "steps": len(seconds) - WARM_UP,
        "bf16": has_bf16(),
    }


def _feature_seconds(run: Path, screens: list[np.ndarray]) -> float | None:
    """The median over screens; None for an agent whose model contains its vision tower."""
    from vlm_agent.models.features import load_extractor
    from vlm_agent.models.weights.precision import has_bf16
    from vlm_agent.recipe.run import read_recipe

    settings = read_recipe(run / "recipe.yaml").model.features
    if settings is None:
        return None
    extractor = load_extractor(settings, precision="bfloat16" if has_bf16() else "float32")
    seconds = []
    for screen in screens:
        start = time.perf_counter()
        extractor.extract([screen])
        seconds.append(time.perf_counter() - start)
    return round(median(seconds), 4)


def _parameters(run: Path) -> int:
    from vlm_agent.models.build import load

    model, _ = load(run, merged=True)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
