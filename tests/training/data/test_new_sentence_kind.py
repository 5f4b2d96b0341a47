"""A new kind of sentences is a class with an entry in both registries; a family names it as one that it reads."""

import json
import random
from dataclasses import replace

import pytest
import yaml
from helpers import tiny

from vlm_agent.cli import OK, main
from vlm_agent.models.llama_vit.family import LLAMA_VIT
from vlm_agent.recipe.data import SENTENCES, SentenceOptions
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.windows import Window
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.sentence_kinds import SENTENCE_KINDS, SentenceKind
from vlm_agent.training.data.stream import Item

NAME = "first_steps"


class FirstSteps(SentenceKind):
    """The first step of every episode."""

    @classmethod
    def phrases_of(cls, data):
        return ("only the first step",)

    def items(self, shards, episodes) -> list[Item]:
        return [Item(episode, Window(0, 0, 1, 0)) for episode in episodes]

    def writer(self, shards):
        def write(item: Item, rng: random.Random) -> Sentence:
            return self.run.sentences.build(shards.steps(item.episode, 0, 1))

        return write

    def notes(self) -> list[Note]:
        return [Note(NAME, "later steps are not read", {"episodes": len(self.episodes)})]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(SENTENCE_KINDS, NAME, FirstSteps)
    monkeypatch.setitem(SENTENCES, NAME, SentenceOptions(controls=False, no_packing="first steps are not packed"))
    genuine = LLAMA_VIT.processor

    def processor(config):
        return replace(genuine(config), sentence_kinds=("trajectory", NAME))

    monkeypatch.setattr(LLAMA_VIT, "processor", processor)


@pytest.fixture
def recipe(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1)])
    content = tiny.recipe(shards, tmp_path / "run")
    content["data"]["sentences"] = NAME
    content["model"]["element_loss"] = 0
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_it_trains_and_its_notes_are_printed_and_recorded(recipe, tmp_path, capsys):
    assert main(["train", "--config", str(recipe)]) == OK
    assert "later steps are not read" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["figures"][NAME] == {"episodes": 2}
    words = json.loads((tmp_path / "run" / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    assert "onlyĠtheĠfirstĠstep" in words


def test_a_dry_run_says_that_its_sentences_are_unknown_before_the_run(recipe, capsys):
    assert main(["train", "--config", str(recipe), "--dry-run"]) != OK
    assert f"those of {NAME} are known only during the run" in capsys.readouterr().err


def test_its_options_hold(recipe, capsys):
    assert main(["train", "--config", str(recipe), "--data.max_tokens", "100"]) != OK
    assert "first steps are not packed" in capsys.readouterr().err
    assert main(["train", "--config", str(recipe), "--data.control", "grey_screens"]) != OK
    assert "control needs sentences: trajectory" in capsys.readouterr().err
