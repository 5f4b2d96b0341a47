"""A new family of models is a module and one entry of FAMILIES: train, its dry run and evaluate run it, here an
encoder-decoder whose batches hold a sequence for each action."""

import io
import json
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from helpers.models import screen_t5
from rich.console import Console
from safetensors.torch import load_file

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import OK, main
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.models.build import load
from vlm_agent.models.family import FAMILIES, family_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence
from vlm_agent.training import train as training

EPISODES = [tiny.episode(number) for number in range(4)]
PARTS = ("vision", "projector", "embeddings", "language_model", "norm", "head")


@pytest.fixture(autouse=True)
def registered():
    screen_t5.register()
    yield
    del FAMILIES[screen_t5.NAME]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES, split="test")


def write_recipe(shards: Path, run: Path, **changes) -> Path:
    content = tiny.recipe(shards, run)
    content["model"] = {
        "vlm": {"config": screen_t5.CONFIG},
        "word_tokenizer": {"vocabulary": 1000},
        "train": dict.fromkeys(PARTS, "full"),
    }
    content["data"]["split"] = "test"
    content["training"] |= {
        "steps": 4,
        "save_steps": 2,
        "accumulation": 2,
        "validation": {"split": "test", "episodes": 2, "steps": 2},
        "optimizer": {"name": "adamw", "learning_rate": 1e-2},
    } | changes
    path = run.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(content))
    return path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def test_it_trains_resumes_is_estimated_and_evaluated(shards, tmp_path, monkeypatch, capsys):
    path = write_recipe(shards, tmp_path / "whole")
    assert main(["train", "--config", str(path), "--dry-run", "--gpu", "H100"]) == OK
    assert "actions to learn" in capsys.readouterr().out
    assert main(["train", "--config", str(path)]) == OK
    printed = capsys.readouterr().out
    assert "step 4/4" in printed and "of actions exact" in printed

    check_resume(write_recipe(shards, tmp_path / "resumed"), monkeypatch)
    resumed, whole = weights(tmp_path / "resumed"), weights(tmp_path / "whole")
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []

    output = tmp_path / "evaluated"
    run = str(tmp_path / "whole")
    assert main(["evaluate", "--checkpoint", run, "--shards", str(shards), "--output", str(output)]) == OK
    predictions = read_predictions(output / "predictions.parquet")
    assert len(predictions) == sum(len(episode) for episode in EPISODES)


def check_resume(path: Path, monkeypatch) -> None:
    def fail(preemption, step, steps, number):
        if step == 3:
            raise InterruptedError("between two checkpoints")
        return False

    console = Console(file=io.StringIO(), width=200)
    with monkeypatch.context() as context:
        context.setattr(training.Preemption, "stops", fail)
        with pytest.raises(InterruptedError):
            training.train(read_recipe(path), Console(file=io.StringIO()))
    training.train(read_recipe(path), console)
    steps = [line.split()[1] for line in console.file.getvalue().splitlines() if line.startswith("step ")]
    assert steps == ["3/4", "4/4"]
    record = json.loads((path.with_suffix("") / "run.json").read_text())
    assert record["figures"]["steps"] == 4


def test_its_loss_is_that_of_each_action_alone_and_decoding_continues_the_history(shards, tmp_path):
    path = write_recipe(shards, tmp_path / "run", steps=1)
    assert main(["train", "--config", str(path)]) == OK
    model, tokenizer = load(tmp_path / "run")
    sentences = family_of(model.config).processor(model.config).sentences(tokenizer, tiny.LANGUAGE)
    sentence = sentences.build(EPISODES[0])
    together = model(**inputs([sentence, sentences.build(EPISODES[1])]))
    alone = [model(**inputs([sentences.build(episode)])) for episode in EPISODES[:2]]
    assert torch.allclose(together.token_losses, torch.cat([one.token_losses for one in alone]), atol=1e-5)
    agent = VlmAgent.from_run(tmp_path / "run")
    answers = agent.answer_episodes([EPISODES[0]])[0]
    assert len(answers) == len(EPISODES[0])
    assert not any(answer.usage.from_prefill for answer in answers)


def inputs(sentences: list[Sentence]) -> dict:
    return {name: value for name, value in screen_t5.collate(sentences).items() if name not in NOT_FOR_MODELS}
