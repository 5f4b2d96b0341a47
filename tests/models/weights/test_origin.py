"""The source of a base is recorded, and a base that changed since its adapter was trained is detected."""

import json
import shutil

import huggingface_hub.constants
import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen
from helpers.runs import served_qwen
from rich.console import Console

from vlm_agent.cli import main
from vlm_agent.errors import CheckpointError
from vlm_agent.models.build import load
from vlm_agent.models.run_layout import checked
from vlm_agent.models.weights.origin import SOURCES_FILE, bases_elsewhere, fingerprint, record_sources, sources_of
from vlm_agent.recipe.model import ModelRecipe, WeightsSource
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.train import train

FIRST, SECOND = "1" * 40, "2" * 40
NAME = "somebody/tiny-vl"


class Hub:
    """A cache of the hub, as a download leaves it, and nothing else to be reached."""

    def __init__(self, folder, published):
        self.folder = folder / "models--somebody--tiny-vl"
        self.published = published

    def publish(self, commit: str) -> None:
        """`main` now is `commit`."""
        shutil.copytree(self.published, self.folder / "snapshots" / commit)
        (self.folder / "refs").mkdir(exist_ok=True)
        (self.folder / "refs" / "main").write_text(commit)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Hub:
    recipe = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(recipe)
    tiny_qwen.model(recipe, words).save_pretrained(tmp_path / "published")
    words.save_pretrained(tmp_path / "published")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub = Hub(tmp_path / "cache", tmp_path / "published")
    hub.publish(FIRST)
    return hub


def trained(folder, **vlm) -> None:
    """RUN, two steps on a checkpoint of the hub."""
    shards = tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(2)])
    content = tiny.recipe(shards, folder / "run")
    content["model"] = {"vlm": {"checkpoint": NAME} | vlm, "min_pixels": 4 * 64, "max_pixels": 24 * 64}
    content["model"]["lora"] = {"rank": 2}
    content["training"] |= {"steps": 1, "optimizer": {"name": "adamw", "learning_rate": 1e-3}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return train(read_recipe(path), Console(quiet=True))


def test_a_base_that_moves_on_the_hub_is_noticed_and_its_commit_can_be_set(hub, tmp_path):
    run = trained(tmp_path)
    source = json.loads((run / "run.json").read_text())["sources"]["vlm"]
    assert source == {"checkpoint": NAME, "commit": FIRST, "content": source["content"]}
    load(run)
    hub.publish(SECOND)
    with pytest.raises(
        CheckpointError, match=f"it was at commit {FIRST} and is at {SECOND} now. Add --model.vlm.revision {FIRST}"
    ):
        load(run)
    with bases_elsewhere({"vlm.revision": FIRST}):
        load(run)


def test_the_folder_of_a_download_can_stand_for_the_name_on_the_hub(hub, tmp_path):
    run = trained(tmp_path)
    shutil.rmtree(hub.folder)
    with bases_elsewhere({"vlm.checkpoint": str(hub.published)}):
        load(run)
        flip(hub.published / "config.json", b'"silu"', b'"gelu"')
        with pytest.raises(CheckpointError, match="are others; restore those that the run was trained on"):
            load(run)


def flip(path, before, after) -> None:
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after))


@pytest.fixture(scope="module")
def on_folder(tmp_path_factory):
    """RUN, trained on the folder `base` beside it, which the recipe names by a relative path."""
    folder = tmp_path_factory.mktemp("on_folder")
    recipe = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(recipe)
    tiny_qwen.model(recipe, words).save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(folder, checkpoint="base")
    return folder


@pytest.fixture
def moved(on_folder, tmp_path):
    """A copy without the base, which lies in `elsewhere`."""
    copy = shutil.copytree(on_folder, tmp_path / "copy")
    (copy / "base").rename(copy / "elsewhere")
    recipe = copy / "run/recipe.yaml"
    assert f"checkpoint: {on_folder}/base" in recipe.read_text()
    on_folder.joinpath("base").rename(on_folder / "hidden")
    yield copy
    on_folder.joinpath("hidden").rename(on_folder / "base")


def evaluate(folder, *options: str) -> int:
    words = ["--checkpoint", str(folder / "run"), "--shards", str(folder / "shards"), "--split", "train"]
    return main(["evaluate", *words, "--controls", "none", "--output", str(folder / "out"), *options])


def test_a_run_is_loaded_from_any_folder_though_its_recipe_named_a_relative_base(on_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load(on_folder / "run")


def test_a_base_that_moved_is_named_with_its_key_and_option_and_leaves_the_output_free(moved, on_folder, capsys):
    assert evaluate(moved) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for words in (str(on_folder / "base"), f"model.vlm.checkpoint in {moved / 'run/recipe.yaml'}", "does not exist"):
        assert words in message
    assert "--model.vlm.checkpoint PATH" in message
    assert "Repo id" not in message
    assert not any((moved / "out").iterdir())
    assert evaluate(moved, "--model.vlm.checkpoint", str(moved / "elsewhere")) == 0


def test_evaluate_merge_and_card_take_the_place_of_a_base_and_the_agent_stays_the_same(moved, capsys):
    place = ("--model.vlm.checkpoint", str(moved / "elsewhere"))
    before = checked(moved / "run").digest
    assert evaluate(moved, *place) == 0
    assert json.loads((moved / "out/plan.json").read_text())["described"]["agent"]["checkpoint"] == before
    assert main(["merge", str(moved / "run"), "--output", str(moved / "merged"), *place]) == 0
    assert main(["card", str(moved / "run"), "--scores", str(moved / "out")]) == 0


def test_another_base_is_refused_with_the_meaning_of_both_digests(moved, capsys):
    weights = moved / "elsewhere/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert evaluate(moved, "--model.vlm.checkpoint", str(moved / "elsewhere")) == 1
    message = capsys.readouterr().err
    assert f"its files at {moved / 'elsewhere'} are others" in message
    assert "fingerprint of the files now" in message
    assert "recorded by the run" in message


def test_the_place_of_a_base_that_the_run_does_not_have_is_refused(moved, capsys):
    assert evaluate(moved, "--model.vision.checkpoint", "x") == 1
    assert "--model.vision.checkpoint has no effect" in capsys.readouterr().err
    assert "it has --model.vlm.checkpoint, --model.vlm.revision" in evaluate_error(moved, capsys)


def evaluate_error(folder, capsys) -> str:
    evaluate(folder, "--model.base", "x")
    return capsys.readouterr().err


def test_the_revision_of_a_recipe_is_read(hub, tmp_path):
    hub.publish(SECOND)
    run = trained(tmp_path, revision=FIRST)
    assert json.loads((run / SOURCES_FILE).read_text())["vlm"]["commit"] == FIRST
    (hub.folder / "refs" / "main").write_text("3" * 40)  # not downloaded
    load(run)


def test_a_gguf_file_in_a_folder_of_a_name_on_the_hub_is_read_with_its_commit(hub):
    file = hub.folder / "snapshots" / FIRST / "BF16" / "tiny.gguf"
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    found = sources_of(ModelRecipe(language_model={"checkpoint": NAME, "gguf_file": "BF16/tiny.gguf"}))
    config = hub.published / "config.json"
    assert found == {"language_model": {"checkpoint": NAME, "commit": FIRST, "content": fingerprint([file, config])}}


def test_a_revision_belongs_to_a_name_on_the_hub(hub, tmp_path):
    with pytest.raises(ValueError, match="revision is a branch, tag or commit of checkpoint"):
        WeightsSource(config={"model_type": "llama"}, revision="main")
    with pytest.raises(CheckpointError, match=r"and '.*published' is a folder; remove revision"):
        trained(tmp_path, checkpoint=str(hub.published), revision="main")


def test_a_folder_whose_weights_change_is_noticed_and_one_that_moves_is_not(tmp_path):
    run = served_qwen.write_run(tmp_path)
    recipe = ModelRecipe(**yaml.safe_load((run / "recipe.yaml").read_text())["model"])
    record_sources(run, recipe)
    record_sources(run, recipe)  # of a run that resumes
    base, moved = tmp_path / served_qwen.BASE, tmp_path / "moved"
    base.rename(moved)
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace(str(base), str(moved)))
    load(run)  # of a run without run.json, which would name the edited recipe
    weights = moved / "model.safetensors"
    weights.write_bytes(bytes(byte ^ 1 if at > 9000 else byte for at, byte in enumerate(weights.read_bytes())))
    with pytest.raises(CheckpointError, match=r"its files at .*moved are others; restore those"):
        load(run)
    (run / SOURCES_FILE).unlink()  # of a version that did not record them
    load(run)


def test_a_base_that_is_a_run_is_recorded_by_its_files():
    (source,) = sources_of(ModelRecipe(base="phone_vlm_tiny")).values()
    assert source["checkpoint"] == "phone_vlm_tiny"
    assert len(source["content"]) == 64


def test_a_fingerprint_is_of_names_sizes_and_blocks_of_the_whole_file(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(1 << 22))
    before = fingerprint([file])
    for change in (bytes(1 << 21), bytes(1 << 22) + b"a", bytes((1 << 22) - 9) + b"a" + bytes(8)):
        file.write_bytes(change)
        assert fingerprint([file]) != before
    file.write_bytes(bytes(1 << 22))
    assert fingerprint([file]) == before


def test_a_moved_base_is_that_of_the_named_run_alone(hub, tmp_path):
    """SFT, then a second and a third adapter: only the base of the third run lies elsewhere."""
    content = yaml.safe_load((trained(tmp_path) / "recipe.yaml").read_text())
    for number, below in ((2, tmp_path / "run"), (3, tmp_path / "run_2")):
        content |= {"output": str(tmp_path / f"run_{number}"), "seed": number}
        content["model"] = {"base": str(below), "train": {"language_model": "lora"}, "lora": {"rank": 2}}
        (tmp_path / "next.yaml").write_text(yaml.safe_dump(content))
        train(read_recipe(tmp_path / "next.yaml"), Console(quiet=True))
    shutil.move(tmp_path / "run_2", tmp_path / "elsewhere")
    with bases_elsewhere({"base": str(tmp_path / "elsewhere")}):
        load(tmp_path / "run_3")
