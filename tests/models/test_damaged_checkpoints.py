"""Damaged files of a checkpoint are one line in every command and under every recipe key that reads one."""

import json
import shutil

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen, tiny_text, vision_towers
from helpers.published import published_qwen_vl as published
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, T5Config, T5ForConditionalGeneration

from vlm_agent.cli import main
from vlm_agent.errors import CheckpointError
from vlm_agent.models.build import load
from vlm_agent.models.pretrained import vision_tower
from vlm_agent.models.run_layout import base_folder
from vlm_agent.recipe.model import WeightsSource

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 3982638456\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of each kind, with its tokenizer, and shards."""
    folder = tmp_path_factory.mktemp("saved")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(2)])
    recipe = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(recipe)
    tiny_qwen.model(recipe, words).save_pretrained(folder / "vlm", max_shard_size="60KB")
    words.save_pretrained(folder / "vlm")
    words = tiny_text.tokenizer()
    tiny_text.model(words).save_pretrained(folder / "language_model")
    words.save_pretrained(folder / "language_model")
    AutoModel.from_config(AutoConfig.for_model(**tiny.CONVNEXT)).save_pretrained(folder / "vision")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": len(words)}
    T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(folder / "encoder_decoder")
    words.save_pretrained(folder / "encoder_decoder")
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def recipe(folder, key: str) -> str:
    content = tiny.recipe(folder / "shards", folder / "run")
    sources = {one: {"checkpoint": str(folder / one)} for one in ("vlm", "language_model", "vision", "encoder_decoder")}
    if key == "vlm":
        content["model"] = {"vlm": sources["vlm"], "min_pixels": 4 * 64, "max_pixels": 24 * 64}
    elif key == "encoder_decoder":
        features = {"extractor": "phone_vlm_tiny"}
        content["model"] = {"encoder_decoder": sources["encoder_decoder"], "features": features}
        content["data"]["sentences"] = "chain_of_actions"
        content["action_language"] = {"name": "auto_ui"}
    else:
        content["model"] = {name: sources[name] for name in ("language_model", "vision")}
        content["model"] |= {"screen_size": list(tiny.SCREEN), "visual_grid": list(tiny.GRID)}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def change_configuration(folder, change):
    """The keys of `change` are set for the whole model and for its text model."""
    path = folder / "vlm/config.json"
    content = json.loads(path.read_text())
    content["text_config"] |= change
    path.write_text(json.dumps(content | change))


def weights_of(place):
    return sorted(place.glob("*.safetensors"))[-1]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize("key", ["vlm", "language_model", "vision", "encoder_decoder"])
@pytest.mark.parametrize("content", [POINTER, b"", None])
def test_train_and_its_dry_run_name_damaged_weights(folder, key, content, options, capsys):
    path = weights_of(folder / key)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    assert main(["train", "--config", recipe(folder, key), *options]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"vlm-agent train: model.{key}.checkpoint '{folder / key}': {path} is ")
    assert message.count("\n") == 1
    assert not (folder / "run/recipe.yaml").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [POINTER, b"{", b'{"model_type": 3}', b'{"model": {"type": "BPE", "vocab": 3}}'])
def test_a_damaged_description_is_one_line(folder, name, content, capsys):
    (folder / "vlm" / name).write_bytes(content)
    status = main(["train", "--config", recipe(folder, "vlm"), "--dry-run"])
    message = capsys.readouterr().err
    if name == "tokenizer_config.json" and status == 0:
        return  # an object without the keys that are read
    assert status == 1
    assert message.startswith("vlm-agent train: model.vlm")
    assert message.strip().count("\n") == 0


def test_a_folder_around_a_model_such_as_a_run_is_refused_as_one(folder, capsys):
    (folder / "vlm").rename(folder / "model")
    (folder / "vlm").mkdir()
    (folder / "model").rename(folder / "vlm/model")
    assert main(["train", "--config", recipe(folder, "vlm"), "--dry-run"]) == 1
    message = capsys.readouterr().err
    assert message.endswith("vlm': config.json is missing, so it is no whole model; a run is named as model.base\n")


@pytest.mark.parametrize("change", [{"hidden_size": "many"}, {"hidden_size": None}, {"vision_config": 3}])
def test_a_configuration_with_a_value_of_another_type_is_one_line(folder, change, capsys):
    change_configuration(folder, change)
    assert main(["train", "--config", recipe(folder, "vlm")]) == 1
    assert "model.vlm" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": []}}'])
def test_a_damaged_index_is_one_line(folder, content, capsys):
    (folder / "vlm/model.safetensors.index.json").write_bytes(content)
    assert main(["train", "--config", recipe(folder, "vlm"), "--dry-run"]) == 1
    message = capsys.readouterr().err
    assert "model.safetensors.index.json is damaged" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    "change", [{"num_attention_heads": 0}, {"num_attention_heads": 7}, {"model_type": []}, {"model_type": {}}]
)
def test_a_configuration_without_heads_or_with_a_type_that_is_no_text_is_one_line(folder, change, capsys):
    change_configuration(folder, change)
    assert main(["train", "--config", recipe(folder, "vlm")]) == 1
    message = capsys.readouterr().err
    assert message.startswith("vlm-agent train: ") and message.count("\n") == 1


def test_a_missing_file_of_an_index_is_named_without_advice_about_bin_files(folder, capsys):
    missing = weights_of(folder / "vlm")
    missing.unlink()
    assert main(["train", "--config", recipe(folder, "vlm"), "--dry-run"]) == 1
    message = capsys.readouterr().err
    assert f"is incomplete: {missing.name}, which model.safetensors.index.json names, is missing" in message
    assert ".bin" not in message


@pytest.mark.parametrize("place", ["no_such/base", "./no_such", "/no/such/base", "~/no/such/base", "a/b/c"])
def test_a_folder_that_does_not_exist_is_named_as_one(folder, place, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    path = recipe(folder, "vlm")
    assert main(["train", "--config", path, "--dry-run", "--model.vlm.checkpoint", place]) == 1
    message = capsys.readouterr().err
    assert "Repo id must be" not in message
    assert f"older {place}" in message


def test_weights_that_a_configuration_leaves_out_are_refused(folder, capsys):
    path = folder / "vlm/config.json"
    content = json.loads(path.read_text())
    content["text_config"]["num_hidden_layers"] -= 1
    content["text_config"]["layer_types"].pop()
    path.write_text(json.dumps(content))
    assert main(["train", "--config", recipe(folder, "vlm")]) == 1
    assert "weights that the model of its config.json does not read" in capsys.readouterr().err


def test_a_layer_of_a_vision_tower_that_a_configuration_leaves_out_is_refused_and_a_classifier_is_not(folder):
    path = folder / "vision/model.safetensors"
    weights = load_file(path)
    save_file(weights | {"classifier.weight": next(iter(weights.values())).clone()}, path, {"format": "pt"})
    source = WeightsSource(checkpoint=str(folder / "vision"))
    vision_tower(source)
    further = {name.replace("layers.0", "layers.7"): tensor for name, tensor in weights.items()}
    save_file({name: tensor.clone() for name, tensor in (weights | further).items()}, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"does not read, .*layers.7"):
        vision_tower(source)


def test_a_flip_that_drops_positions_of_a_run_without_digests_is_refused(tmp_path):
    run = shutil.copytree(base_folder("phone_vlm_tiny"), tmp_path / "run")
    (run / "run.json").unlink()
    config = run / "model/config.json"
    assert '"visual_positions": true' in config.read_text()
    config.write_text(config.read_text().replace('"visual_positions": true', '"visual_positions": false'))
    with pytest.raises(CheckpointError, match=r"does not read, projector.positions first"):
        load(run)


@pytest.mark.parametrize("content", [POINTER, b"", b"{", b'{"version": 3}', b"[" * 9999, b"\xff"])
def test_a_damaged_tokenizer_of_a_run_without_digests_is_one_line(tmp_path, content):
    run = shutil.copytree(base_folder("phone_vlm_tiny"), tmp_path / "run")
    (run / "run.json").unlink()
    (run / "tokenizer/tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="tokenizer") as found:
        load(run)
    assert "\n" not in str(found.value)


def test_convert_checkpoint_names_damaged_weights(tmp_path, capsys):
    source = published.write(tmp_path / "published", published.random_weights())
    weights_of(source).write_bytes(POINTER)
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == 1
    assert f"{weights_of(source)} is a pointer of git-lfs" in capsys.readouterr().err


def test_features_name_damaged_weights_of_their_extractor(folder, capsys):
    words = ["features", str(folder / "shards"), "--output", str(folder / "features"), "--extractor", "vit"]
    tower = vision_towers.write("vit", folder / "tower")
    weights_of(tower).write_bytes(POINTER)
    assert main([*words, "--checkpoint", str(tower)]) == 1
    assert f"{weights_of(tower)} is a pointer of git-lfs" in capsys.readouterr().err
    assert main([*words, "--checkpoint", str(folder / "absent")]) == 1
    assert f"the folder {folder / 'absent'} does not exist" in capsys.readouterr().err
