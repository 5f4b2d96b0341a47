"""The pretrained base that comes with the package: it is the one its card speaks of, and a recipe has it by name."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from safetensors import safe_open
from safetensors.torch import load_file

from vlm_agent.errors import UserError
from vlm_agent.models import run_layout as embedded
from vlm_agent.models.build import Vocabulary, build, build_tokenizer, configuration_of
from vlm_agent.models.run_layout import EMBEDDED, base_folder
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import read_recipe

ROOT = Path(__file__).resolve().parents[2]
NAME = "phone_vlm_tiny"
FOLDER = ROOT / "vlm_agent/models/bases" / NAME
WEIGHTS = "model/model.safetensors"
VOCABULARY = Vocabulary(tiny.LANGUAGE.vocabulary(), ("words of the data",))


def card() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_base_of_the_package_is_known_by_its_weights():
    assert {path.name for path in FOLDER.parent.iterdir()} == set(EMBEDDED) == {NAME}
    assert base_folder(NAME) == FOLDER
    assert hashlib.sha256((FOLDER / WEIGHTS).read_bytes()).hexdigest() == EMBEDDED[NAME]


def test_a_checkpoint_is_found_from_within_its_run(tmp_path, monkeypatch):
    checkpoint = tmp_path / "checkpoints/checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").touch()
    for place, path in ((tmp_path, "checkpoints/checkpoint-5"), (checkpoint.parent, "checkpoint-5"), (checkpoint, ".")):
        monkeypatch.chdir(place)
        assert embedded.trained(Path(path)) == embedded.Trained(tmp_path, checkpoint, adapted=False)


def test_a_base_is_small():
    with safe_open(FOLDER / WEIGHTS, "pt") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 (not a mapping)
    assert sum(torch.Size(shape).numel() for shape in shapes) <= 10_000_000
    assert (FOLDER / WEIGHTS).stat().st_size <= 20e6
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 24e6


def test_the_card_names_these_weights_their_licence_and_pictures_that_are_there():
    assert EMBEDDED[NAME] in card()
    assert "Apache-2.0" in card()
    assert "{{" not in card()
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", card())
    assert len(pictures) == 3
    assert all(0 < (FOLDER / picture).stat().st_size < 1_000_000 for picture in pictures)


def test_the_card_of_the_base_names_the_recipe_and_the_commit_of_each_part():
    for part in ("reading", "walks", "reading_and_walks"):
        assert re.search(f"`shipped_weights/phone_vlm_tiny/{part}.yaml`: commit `[0-9a-f]{{40}}`", card())


def test_a_recipe_has_its_weights_words_and_screens_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no run lies that it was made from
    recipe = ModelRecipe(base=NAME)
    tokenizer = build_tokenizer(recipe, VOCABULARY)
    model = build(recipe, tokenizer, tiny.LANGUAGE)
    saved = load_file(FOLDER / WEIGHTS)
    assert {name: tensor for name, tensor in model.state_dict().items() if name in saved}.keys() == saved.keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, saved[name], rtol=0, atol=0)
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert tuple(configuration_of(recipe, tokenizer).screen_size) == tuple(model.config.screen_size) == (448, 224)
    assert not Path(read_recipe(FOLDER / "recipe.yaml").model.base).exists()  # what it was made from is not needed
    assert tokenizer.decode(tokenizer("tap at 12 34").input_ids, skip_special_tokens=True).strip() == "tap at 12 34"


def test_any_other_base_is_the_path_of_a_run(tmp_path):
    assert base_folder(str(tmp_path)) == tmp_path
    with pytest.raises(FileNotFoundError, match="no model"):
        build_tokenizer(ModelRecipe(base=str(tmp_path / "phone_vlm_tin")), VOCABULARY)


def test_weights_that_are_not_the_packages_own_are_refused(tmp_path, monkeypatch):
    shutil.copytree(FOLDER, tmp_path / "bases" / NAME)
    weights = tmp_path / "bases" / NAME / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.setattr(embedded, "files", lambda package: tmp_path)
    with pytest.raises(UserError, match=f"{WEIGHTS} differs from the SHA-256.*installation is damaged"):
        base_folder(NAME)


def test_a_wheel_brings_every_file_of_it(tmp_path):
    """Packed from a copy, so that the build files of setuptools are not in the checkout."""
    tree = tmp_path / "tree"
    ours = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "vlm_agent", tree / "vlm_agent", ignore=ours)
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.txt"):
        shutil.copy(ROOT / name, tree / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--no-compile",
    ]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*command, "--target", tmp_path / "site", tree], check=True, capture_output=True, env=environment)
    installed = tmp_path / "site/vlm_agent/models/bases" / NAME
    files = {path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file()}
    assert {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()} == files
    assert (installed / WEIGHTS).read_bytes() == (FOLDER / WEIGHTS).read_bytes()


def test_its_recipe_for_agents_is_lora_with_its_vision_as_it_is():
    model = read_recipe(ROOT / "recipes/phone_vlm_tiny_lora.yaml").model
    assert model.base == NAME
    assert model.train.language_model == "lora"
    assert model.train.vision == model.train.projector == "frozen"


def test_its_saved_recipe_is_plain_yaml_without_local_paths():
    recipe = yaml.safe_load((FOLDER / "recipe.yaml").read_text(encoding="utf-8"))
    assert not Path(recipe["output"]).is_absolute()
