"""A file of a finished run that differs from its recorded SHA-256 is refused by every command that loads the run."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import tiny

from vlm_agent.cli import main
from vlm_agent.errors import CheckpointError
from vlm_agent.models import run_layout
from vlm_agent.models.build import load
from vlm_agent.models.run_layout import base_folder, checked, trained

DECISIVE = (
    *("recipe.yaml", "model/adapter_config.json", "model/adapter_model.safetensors", "base/config.json"),
    *("base/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"),
)


def flip(path: Path, byte: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def recipe_file(folder: Path, **changes) -> Path:
    """The recipe of an adapter on random weights, with a checkpoint after each of two steps."""
    content = tiny.recipe(folder / "shards", folder / "run") | changes
    content["model"] |= {"train": {"language_model": "lora"}, "lora": {"rank": 2, "alpha": 4}}
    content["training"] |= {"steps": 2, "save_steps": 1}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder / "recipe.yaml"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digests")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(2)])
    assert main(["train", "--config", str(recipe_file(folder))]) == 0
    assert main(["merge", str(folder / "run"), "--output", str(folder / "merged")]) == 0
    return folder


@pytest.fixture
def folder(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "copy")


def evaluated(folder: Path, run: Path, capsys) -> tuple[int, str]:
    words = ["--checkpoint", str(run), "--shards", str(folder / "shards"), "--split", "train", "--controls", "none"]
    status = main(["evaluate", *words, "--output", str(folder / "out")])
    return status, capsys.readouterr().err


def test_every_file_that_decides_an_answer_is_recorded(original):
    record = json.loads((original / "run/run.json").read_text())["files"]
    assert set(record) == {path.relative_to(original / "run").as_posix() for path in trained(original / "run").files}
    assert set(record) == set(DECISIVE)


@pytest.mark.parametrize("name", DECISIVE)
def test_a_flipped_bit_of_a_finished_run_is_one_line_that_names_the_file(folder, name, capsys):
    flip(folder / "run" / name)
    status, message = evaluated(folder, folder / "run", capsys)
    assert status == 1
    assert message.startswith(f"vlm-agent evaluate: {folder / 'run' / name} differs from the SHA-256")
    assert message.count("\n") == 1
    assert not (folder / "out").exists()
    with pytest.raises(CheckpointError, match="differs from the SHA-256"):
        load(folder / "run")


@pytest.mark.parametrize(
    "words", [["merge", "RUN"], ["train", "--config", "RECIPE"], ["card", "RUN", "--scores", "OUT"]]
)
def test_other_commands_that_load_a_run_refuse_it_as_well(folder, words, capsys):
    flip(folder / "run/model/adapter_model.safetensors")
    recipe = yaml.safe_load(recipe_file(folder).read_text())
    recipe |= {"model": {"base": str(folder / "run")}, "output": str(folder / "next")}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    places = {"RUN": folder / "run", "RECIPE": folder / "recipe.yaml", "OUT": folder / "out"}
    output = ["--output", str(folder / "other")] if words[0] == "merge" else []
    assert main([*(str(places.get(word, word)) for word in words), *output]) == 1
    assert f"{folder / 'run/model/adapter_model.safetensors'} differs" in capsys.readouterr().err


def test_a_missing_file_is_named(folder, capsys):
    (folder / "run/tokenizer/tokenizer_config.json").unlink()
    status, message = evaluated(folder, folder / "run", capsys)
    assert status == 1
    assert "tokenizer_config.json is missing; restore it from a copy of the run" in message


def test_an_edited_recipe_is_refused_and_the_message_names_the_option_for_a_base(folder, capsys):
    path = folder / "run/recipe.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 1"))
    status, message = evaluated(folder, folder / "run", capsys)
    assert status == 1
    assert "recipe.yaml differs" in message
    assert "--model.KEY.checkpoint PATH" in message


def test_files_of_a_merged_checkpoint_are_recorded_too(folder):
    load(folder / "merged")
    flip(folder / "merged/model/model.safetensors")
    with pytest.raises(CheckpointError, match=r"merged/model/model.safetensors differs"):
        load(folder / "merged")


def test_a_checkpoint_is_compared_with_its_own_record_and_with_the_run(folder):
    checkpoint = next((folder / "run/checkpoints").glob("checkpoint-*"))
    flip(folder / "run/model/adapter_model.safetensors")  # which the checkpoint does not read
    load(checkpoint)
    flip(checkpoint / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"adapter_model.safetensors differs .*use another checkpoint"):
        load(checkpoint)
    shutil.copy(folder / "run/recipe.yaml", folder / "kept.yaml")
    flip(folder / "run/recipe.yaml")
    with pytest.raises(CheckpointError, match=r"recipe.yaml differs"):
        checked(checkpoint)


def test_a_checkpoint_without_its_record_is_incomplete(folder):
    checkpoint = next((folder / "run/checkpoints").glob("checkpoint-*"))
    (checkpoint / "whole.json").unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        load(checkpoint)


def test_a_run_that_was_interrupted_before_its_record_has_nothing_to_compare_beside_its_checkpoints(folder):
    (folder / "run/run.json").unlink()
    flip(folder / "run/tokenizer/tokenizer_config.json", 0)
    assert checked(folder / "run").run == folder / "run"


def test_weights_are_hashed_once_by_a_process(folder, monkeypatch):
    run_layout._digest_of_version.cache_clear()
    before = trained(folder / "run").digests
    monkeypatch.setattr(run_layout.hashlib, "file_digest", None)
    checked(folder / "run", weights=True)
    assert trained(folder / "run").digests == before


@pytest.mark.parametrize("name", ["tokenizer/tokenizer.json", "model/config.json", "recipe.yaml"])
def test_every_file_of_the_embedded_base_is_compared(tmp_path, monkeypatch, name):
    shutil.copytree(base_folder("phone_vlm_tiny"), tmp_path / "bases/phone_vlm_tiny")
    monkeypatch.setattr(run_layout, "files", lambda package: tmp_path)
    base_folder("phone_vlm_tiny")
    flip(tmp_path / "bases/phone_vlm_tiny" / name)
    with pytest.raises(CheckpointError, match=f"{name} differs .*the installation is damaged"):
        base_folder("phone_vlm_tiny")
