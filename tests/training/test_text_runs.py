"""A run of a text model: counted, trained, resumed, adapted, merged and evaluated."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from helpers import tiny
from helpers.models import tiny_text
from safetensors.torch import load_file

from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.models import build
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.report import Target, dry_run

WEIGHTS = Path("model") / "model.safetensors"
EPISODES = [tiny_text.episode(number) for number in range(3)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES)


def write(folder: Path, shards: Path, name: str, **changes) -> Path:
    content = tiny_text.recipe(shards, folder / name, **changes.pop("model", {}))
    content["training"] |= changes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def run(shards, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", "--config", str(write(folder, shards, "run", steps=4, save_steps=2))]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def adapter(run, shards) -> Path:
    """LoRA on the finished run."""
    path = write(run.parent, shards, "adapter", optimizer={"learning_rate": 1e-2})
    content = yaml.safe_load(path.read_text())
    content["model"] = {"base": str(run), "lora": {"rank": 2, "dropout": 0.0}}
    path.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(path)]) == 0
    return run.parent / "adapter"


def data(shards: Path, **changes) -> ShardDataModule:
    content = tiny_text.recipe(shards, Path("unused"))
    for key, value in changes.items():
        content[key] = content[key] | value
    return ShardDataModule(Recipe(**content))


@pytest.mark.parametrize("control", [None, "grey_screens"])
def test_counted_tokens_are_those_of_the_sentences(shards, control):
    module = data(shards, data={"control": control})
    counts = module.kind.counts
    assert counts.items["tokens"].tolist() == [len(module.sentences.build(episode)) for episode in EPISODES]
    assert (counts.steps["screen"] > 0).all() == (control is None)


@pytest.mark.parametrize("past", [0, 1])
def test_with_past_screens_too_a_sentence_has_the_tokens_that_were_counted(shards, past):
    module = data(shards, data={"past_screens": past})
    writer, items = module.writer(), module.order.items
    assert len(items) == sum(map(len, EPISODES))
    assert [len(writer(item, None)) for item in items] == [item.window.tokens for item in items]
    written = [module.sentences.text(writer(item, None).input_ids) for item in items]
    assert any("click on" in text for text in written)  # by name: the numbers are of screens that are not shown


def test_shards_without_elements_are_refused(tmp_path):
    bare = [tiny.episode(0)]
    for step in bare[0].steps:
        object.__setattr__(step, "elements", ())
    module = data(tiny.write_shards(tmp_path / "bare", bare))
    with pytest.raises(RecipeError, match="reads the elements of screens, and these shards have none"):
        _ = module.order


def test_training_reads_no_pixels(shards, monkeypatch):
    module = data(shards)
    monkeypatch.setattr(ShardDataset, "steps", None)
    monkeypatch.setattr(ShardDataset, "__getitem__", None)
    assert module.stream()[0]["input_ids"].numel()


def test_a_window_of_a_long_episode_has_the_tokens_that_were_counted(shards):
    module = data(shards, data={"max_tokens": 150})
    writer = module.writer()
    items = module.order.items
    assert len(items) > len(EPISODES)
    assert [len(writer(item, None)) for item in items] == [item.window.tokens for item in items]


def test_a_dry_run_counts_the_flops_of_the_tokens_and_no_vision(shards):
    module = data(shards)
    result = dry_run(module, Target(find_gpu("a100-80"), 1))
    assert set(result.parameters) == {"embeddings", "language_model", "norm", "head"}
    load, shape = result.reads.load, module.cost.decoder
    assert load.tokens == sum(len(module.sentences.build(episode)) for episode in EPISODES)
    maps = sum(inputs * outputs for inputs, outputs in (*shape.first_maps, *shape.later_maps)) * shape.layers
    pairs = 12 * shape.query_width * load.pairs * shape.layers
    # trained in full, embeddings too: 6 operations a weight and token
    assert module.flops(0).of(load).model == pytest.approx(
        6 * maps * load.tokens + pairs + 6 * shape.hidden * shape.vocabulary * load.supervised
    )


def test_a_resumed_run_has_the_weights_of_an_undisturbed_one(run, shards, tmp_path):
    undisturbed = load_file(run / WEIGHTS)
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "run.json").unlink()
    shutil.rmtree(copy / "model")
    shutil.rmtree(copy / "checkpoints" / "checkpoint-4", ignore_errors=True)
    assert (copy / "checkpoints" / "checkpoint-2").is_dir()
    assert main(["train", "--config", str(write(tmp_path, shards, "run", steps=4, save_steps=2))]) == 0
    resumed = load_file(copy / WEIGHTS)
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)


def test_log_lines_have_finite_losses(run):
    lines = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    assert np.isfinite([line["loss"] for line in lines]).all()


def answers(shards: Path, run: Path, *options: str) -> dict:
    output = run.with_name(f"{run.name}_evaluation")
    words = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--split", "train", "--output", str(output)]
    assert main([*words, *options]) == 0
    return json.loads((output / "metrics.json").read_text())


def test_a_merged_adapter_answers_as_the_run_does(adapter, shards, tmp_path):
    merged = tmp_path / "merged"
    assert main(["merge", str(adapter), "--output", str(merged), "--samples", "2"]) == 0
    assert answers(shards, merged, "--controls", "none")
    first, second = (build.load(path, merged=True)[0] for path in (adapter, merged))
    sentences = tiny_text.processor().sentences(tiny_text.tokenizer(), tiny_text.LANGUAGE)
    ids = torch.tensor([sentences.encode(sentences.start()).input_ids])
    torch.testing.assert_close(first(input_ids=ids).logits, second(input_ids=ids).logits, rtol=1e-4, atol=1e-5)


def test_an_evaluation_has_its_controls_and_the_simulated_phone_gives_elements(run, shards, tmp_path):
    metrics = answers(shards, run)
    assert {"grey_screens", "no_history"} <= set(metrics)
    words = ["act", "--agent", str(run), "--device", "simulated:general/test/7", "--steps", "2"]
    assert main([*words, "--trace", str(tmp_path / "trace")]) in (0, 1)


def test_a_run_under_the_control_without_sight_is_evaluated_under_it(shards, tmp_path):
    path = write(tmp_path, shards, "blind", steps=1)
    content = yaml.safe_load(path.read_text())
    content["data"]["control"] = "grey_screens"
    path.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(path)]) == 0
    assert answers(shards, tmp_path / "blind", "--controls", "none")
