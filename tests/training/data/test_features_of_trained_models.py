"""A trained model, also an adapter, remembers the features of its training, and its next training refuses others."""

import shutil
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.runs import auto_ui_run
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, write_json
from vlm_agent.models.build import configuration_of, load
from vlm_agent.models.features.store import FeatureStore
from vlm_agent.models.run_layout import trained
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.shard_data import ShardDataModule

LORA = {"embeddings": "frozen", "language_model": "lora", "norm": "frozen", "head": "frozen", "projector": "full"}
FEATURES = {"extractor": auto_ui_run.EXTRACTOR, "form": "patches"}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    auto_ui_run.register(monkeypatch)


def extract(shards: Path, output: Path, *options: str) -> Path:
    command = ["features", str(shards), "--extractor", FEATURES["extractor"], "--form", FEATURES["form"]]
    assert main([*command, *options, "--output", str(output)]) == OK
    return output


def of_other_weights(features: Path, copy: Path) -> Path:
    shutil.copytree(features, copy)
    manifest = read_checked(copy / "manifest.json", "")
    manifest["extractor"]["digest"] = "0" * 64
    write_json(copy / "manifest.json", manifest)
    return copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With `shards`, `features` in three kinds, and `run`, an adapter on the T5 in `t5`, with a checkpoint."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        auto_ui_run.register(patch)
        shards = tiny.write_shards(folder / "shards", [tiny.episode(0), tiny.episode(1)])
        features = extract(shards, folder / "features", "--bf16")
        extract(shards, folder / "float32")
        of_other_weights(features, folder / "other")
        whole = auto_ui_run.write_run(folder / "whole", shards, features=str(features))
        tokenizer = AutoTokenizer.from_pretrained(whole / "tokenizer")
        T5ForConditionalGeneration(T5Config(**auto_ui_run.T5, vocab_size=len(tokenizer))).save_pretrained(folder / "t5")
        tokenizer.save_pretrained(folder / "t5")
        content = auto_ui_run.recipe(shards, folder / "run", features=str(features))
        content["model"] = {"encoder_decoder": {"checkpoint": str(folder / "t5")}, "features": FEATURES, "train": LORA}
        content["training"]["save_steps"] = 2
        (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
        assert main(["train", "--config", str(folder / "recipe.yaml")]) == OK
    return folder


def extractor_of(config) -> tuple[str, str]:
    return config.features["digest"], config.features["precision"]


def test_an_adapter_remembers_the_features_of_its_training_in_runs_checkpoints_and_merged(folder):
    run, store = folder / "run", FeatureStore(folder / "features")
    expected = store.digest, "bfloat16"
    checkpoint = next((run / "checkpoints").iterdir())
    for path in (run, checkpoint):
        assert trained(path).adapted
        assert run / "features.json" in trained(path).files
        assert extractor_of(load(path)[0].config) == expected
        assert extractor_of(load(path, merged=True)[0].config) == expected
        tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
        assert extractor_of(configuration_of(ModelRecipe(base=str(path)), tokenizer)) == expected
    assert main(["merge", str(run), "--output", str(folder / "merged")]) == OK
    assert extractor_of(load(folder / "merged")[0].config) == expected


@pytest.mark.parametrize(("features", "complaint"), [("other", "of another checkpoint"), ("float32", "in bfloat16")])
def test_an_adapter_is_not_evaluated_on_other_features(folder, tmp_path, features, complaint, capsys):
    command = ["evaluate", "--checkpoint", str(folder / "run"), "--shards", str(folder / "shards"), "--split", "train"]
    where = ["--agent.features", str(folder / features), "--controls", "none", "--output", str(tmp_path / "out")]
    assert main([*command, *where]) == FAILED
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("base", ["run", "checkpoint"])
@pytest.mark.parametrize(
    ("features", "complaint"),
    [("features", None), ("other", "of another checkpoint .* that of the trained model"), ("float32", "in bfloat16")],
)
def test_a_trained_model_continues_on_the_same_features_alone(folder, tmp_path, base, features, complaint):
    content = auto_ui_run.recipe(folder / "shards", tmp_path / "next", features=str(folder / features))
    content["model"] = {"base": str(folder / "run")}
    if base == "checkpoint":
        model, tokenizer = load(folder / "run", merged=True)
        model.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        content["model"] = {"encoder_decoder": {"checkpoint": str(tmp_path / "model")}, "features": FEATURES}
    data = ShardDataModule(Recipe(**content))
    if complaint is None:
        assert len(data.stream())
    else:
        with pytest.raises(DatasetError, match=complaint):
            data.stream()[0]
