"""The recipes in recipes/ are recipes, and their headers give commands that work."""

import re
import shlex
from pathlib import Path

import pytest

from vlm_agent.cli import _parser
from vlm_agent.models.recipe import TrainedParts
from vlm_agent.models.sources import FAMILIES
from vlm_agent.training.recipe import Recipe, read_recipe

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "recipes").glob("*.yaml"))


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines[: next(n for n, text in enumerate(lines) if not text.startswith("#"))])


def commands(path: Path, name: str) -> list[list[str]]:
    """The arguments of each `vlm-agent NAME …` in the header."""
    found = re.findall(rf"^#   vlm-agent ({name} .*)$", header(path), re.MULTILINE)
    return [shlex.split(command) for command in found]


def test_there_are_the_papers_and_the_demos_recipes():
    names = {path.stem for path in FILES}
    assert {"llama_vit_llama2_7b", "llama_vit_smollm2", "llama_vit_tiny"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_reads_and_is_what_it_says_when_saved(path, tmp_path):
    recipe = read_recipe(path)
    (tmp_path / "saved.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    assert read_recipe(tmp_path / "saved.yaml") == recipe


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_recipe_says_of_every_part_of_a_model_how_it_is_trained(family):
    assert set(TrainedParts.model_fields) == set(family.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_header_gives_the_command_that_trains_this_recipe_and_its_cost(path):
    (training,) = commands(path, "train")
    assert training[:3] == ["train", "--config", f"recipes/{path.name}"]
    assert re.search(r"^# Cost\b", header(path), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_command_in_a_header_has_options_that_exist_and_the_recipes_own_folders(path):
    recipe = read_recipe(path)
    for command in commands(path, "(?:convert|train|evaluate)"):
        _, unknown = _parser().parse_known_args(command)
        keys = {key.removeprefix("--"): value for key, value in zip(unknown[::2], unknown[1::2], strict=True)}
        assert not keys or command[0] == "train"
        read_recipe(path, keys)
        options = dict(zip(command[1::2], command[2::2], strict=False))
        if command[0] == "convert":
            assert options["--output"] == recipe.data.shards
        if command[0] == "evaluate":
            assert (options["--checkpoint"], options["--shards"]) == (recipe.output, recipe.data.shards)


def test_the_papers_recipe_freezes_what_the_paper_freezes():
    recipe: Recipe = read_recipe(ROOT / "recipes" / "llama_vit_llama2_7b.yaml")
    trained = {part: kind for part, kind in recipe.model.train.model_dump().items() if kind != "frozen"}
    assert trained == {"projector": "full", "language_model": "lora"}
    assert recipe.data.mixture == {"google_apps": 0.1}
    assert recipe.data.sentences == "trajectory"
