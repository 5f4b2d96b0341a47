"""Overfitting, end to end: the tiny network learns a few episodes to the last step.

A tap is correct only if the model located the target on the screen, wrote an action that parses, and every stage
between the TFRecord and the matcher kept the order (y, x). A fault in any stage fails these two tests.
"""

import io
from pathlib import Path

import pytest
from rich.console import Console

from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.datasets.convert import convert
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import AGENT, evaluate
from vlm_agent.recipe.run import read_recipe
from vlm_agent.simulator.demonstrations import simulate
from vlm_agent.training.train import train

RECIPE = Path(__file__).parents[1] / "recipes/llama_vit_tiny.yaml"
# A quarter of the pixels and half the tokens: enough to tell the screens apart, and a quarter of the time.
SMALL_SCREENS = {"model.screen_size": "[224, 104]", "model.visual_grid": "[14, 4]"}
ACTIONS_ONLY = {"model.element_loss": "0", "training.save_steps": "null"}


def _overfit(records: Path, folder: Path, **keys) -> dict:
    """Scores on the episodes that the tiny recipe, with `keys` overridden, was trained on."""
    console = Console(file=io.StringIO())
    convert("aitw", [records], folder / "shards", console=console)
    overrides = ACTIONS_ONLY | {"output": str(folder / "run"), "data.shards": str(folder / "shards")} | keys
    run = train(read_recipe(RECIPE, overrides), console)
    benchmark = Benchmark(shards=folder / "shards", split="train")
    return evaluate(VlmSettings(run=str(run)), benchmark, folder / "scores", console, controls=False)[AGENT]


def test_the_real_episode_is_converted_learned_and_predicted_4_of_4(shared, tmp_path):
    keys = SMALL_SCREENS | {"training.steps": "80", "training.batch_size": "1"}
    scores = _overfit(shared / "data/aitw_tfrecord", tmp_path, **keys)
    assert scores["official"]["google_apps"]["steps"] == 4
    assert scores["official"]["google_apps"]["partial_match"] == scores["strict"]["google_apps"]["partial_match"] == 100


@pytest.mark.slow
def test_20_simulated_episodes_are_learned_to_95_percent_strict(tmp_path):
    simulate(tmp_path / "aitw", 20, seed=5, splits={"train": 1.0}, console=Console(file=io.StringIO()))
    keys = SMALL_SCREENS | {"training.steps": "240", "training.batch_size": "2"}
    scores = _overfit(tmp_path / "aitw", tmp_path, **keys)
    assert scores["strict"]["overall"]["episodes"] == 20
    assert scores["strict"]["overall"]["partial_match"] >= 95
