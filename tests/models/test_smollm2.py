"""Real weights take a few real steps on a real episode, and are the same after a file."""

import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.published import real_weights
from rich.console import Console

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents import Answer, demonstrated
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.models.build import save
from vlm_agent.models.family import processor_of
from vlm_agent.models.run_layout import BASE_FOLDER
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training import train as training

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "llama_vit_smollm2.yaml"
STEPS = 5


@dataclass
class Run:
    folder: Path
    episode: Episode
    losses: list[float]
    answers: list[Answer]
    """The answers of the agent before its weights were saved."""


@pytest.fixture(scope="module")
def run(shared, tmp_path_factory) -> Run:
    """A few steps on the real AITW episode."""
    folder = tmp_path_factory.mktemp("smollm2")
    convert("aitw", [shared / "data" / "aitw_tfrecord"], folder / "shards", console=Console(file=io.StringIO()))
    overrides = {
        "output": folder / "run",
        "data.shards": folder / "shards",
        "model.language_model.checkpoint": real_weights.smollm2(),
        "model.vision.checkpoint": shared / "weights" / "dinov2-small",
        "model.visual_grid": [4, 4],
        "model.screen_size": [224, 112],
        "training.steps": STEPS,
        "training.accumulation": 1,
        "training.warmup_steps": 0,
        "training.save_steps": "null",
        "training.log_steps": 1,
        "training.optimizer.learning_rate": 2e-3,
    }
    episode = ShardDataset(folder / "shards")[0]
    answers = []

    def answer_and_save(model, tokenizer, run: Path, state: dict, base: str | None) -> None:
        sentences = processor_of(model.config).sentences(tokenizer, BinnedLanguage())
        answers.extend(VlmAgent(model.eval(), tokenizer, sentences).answer_episodes([episode])[0])
        save(model, tokenizer, run, state, base)

    printed = Console(file=io.StringIO(), width=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "save", answer_and_save)
        training.train(read_recipe(RECIPE, {key: str(value) for key, value in overrides.items()}), printed)
    steps = [line for line in printed.file.getvalue().splitlines() if line.startswith("step ")]
    losses = [float(line.split("loss ")[1].split()[0]) for line in steps]
    return Run(folder / "run", episode, losses, answers)


def test_the_loss_falls(run):
    assert len(run.losses) == STEPS
    assert run.losses[-1] < run.losses[0] / 2


def test_only_the_adapter_and_the_projection_are_saved(run):
    assert not (run.folder / BASE_FOLDER).exists()
    weights = sum(file.stat().st_size for file in (run.folder / "model").iterdir())
    assert weights < 30e6, "135 M parameters of the base would weigh hundreds of megabytes"


def test_the_loaded_agent_answers_as_it_did_before_it_was_saved(run):
    agent = VlmAgent.from_run(run.folder)
    assert agent.answer_episodes([run.episode])[0] == run.answers
    stepwise = agent.act(run.episode.goal, demonstrated(run.episode, 2), run.episode.steps[2].screen)
    assert stepwise == run.answers[2]
    assert any(answer.action is not None for answer in run.answers), "a few steps teach at least an action's form"
