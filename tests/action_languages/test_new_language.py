"""A new action language needs one file and one entry of LANGUAGES; every command then supports it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.models import tokenizers_of_all_kinds as kinds

from vlm_agent.action_languages import (
    LANGUAGES,
    ActionLanguage,
    Coordinate,
    LanguageSettings,
    LanguageVocabulary,
    language_settings,
)
from vlm_agent.agents.decoding.constrained import Constrained
from vlm_agent.agents.decoding.greedy import Limits
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, ActionKind, Screen
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.training.data.recipe_sentences import whole_lengths

EPISODES = [tiny.episode(number) for number in range(2)]


@dataclass(frozen=True)
class LetterLanguage(ActionLanguage):
    """Taps and swipes as letters of a grid (`b c`), typed text after a colon, other actions by their number."""

    letters: str = "abcd"

    @property
    def instructions(self) -> str:
        return f"Say a row and a column, {self.letters[0]} to {self.letters[-1]}."

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        if action.kind is ActionKind.TYPE:
            return ":" + action.text
        if action.kind is not ActionKind.DUAL_POINT:
            return f"#{action.kind}"
        points = [action.touch_yx] if action.is_tap else [action.touch_yx, action.lift_yx]
        return " ".join(self._letter(value) for point in points for value in point)

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        if text.startswith(":"):
            return Action.type_text(text[1:])
        if re.fullmatch(r"#[0-9]{1,3}", text) and int(text[1:]) in (5, 6, 7, 10, 11):
            return Action(ActionKind(int(text[1:])))
        if re.fullmatch(f"[{self.letters}]( [{self.letters}])*", text) and text.count(" ") in (1, 3):
            places = [(self.letters.index(letter) + 0.5) / len(self.letters) for letter in text.split(" ")]
            return Action.swipe((places[0], places[1]), (places[-2], places[-1]))
        return None

    def vocabulary(self) -> LanguageVocabulary:
        places = [(letter, (index + 0.5) / len(self.letters)) for index, letter in enumerate(self.letters)]
        rows = [Coordinate(letter + " ", 0, place) for letter, place in places]
        columns = [Coordinate(letter, 1, place) for letter, place in places]
        return LanguageVocabulary(("#", ":"), (*rows, *columns))

    def _letter(self, value: float) -> str:
        return self.letters[min(int(value * len(self.letters)), len(self.letters) - 1)]


@dataclass(frozen=True)
class EndingLanguage(LetterLanguage):
    """`LetterLanguage` with `ending`, so that decoding can be constrained."""

    def ending(self, text: str) -> str | None:
        first = self.letters[0]
        endings = ("", first, f" {first}", f"{first} {first}", "5", "#5", "0", "1")
        return next((ending for ending in endings if self.decode(text + ending) is not None), None)


class LetterSettings(LanguageSettings):
    """`letters`: the letters of the grid. `with_ending`: whether decoding can be constrained."""

    name: str = "letters"
    letters: str = "abcd"
    with_ending: bool = True

    def build(self) -> ActionLanguage:
        return (EndingLanguage if self.with_ending else LetterLanguage)(self.letters)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(LANGUAGES, "letters", LetterSettings)


@pytest.fixture
def shards(tmp_path) -> Path:
    return tiny.write_shards(tmp_path / "shards", EPISODES, split="test")


def write_recipe(shards: Path, run: Path, **language) -> Path:
    content = tiny.recipe(shards, run)
    content["data"]["split"] = "test"
    content["action_language"] = {"name": "letters", "letters": "abcdef"} | language
    path = run.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(content))
    return path


def test_dry_run_train_and_evaluate_support_it(shards, tmp_path, capsys):
    run = tmp_path / "run"
    recipe = str(write_recipe(shards, run))
    assert main(["train", "--config", recipe, "--dry-run", "--gpu", "H100"]) == OK
    assert "actions to learn" in capsys.readouterr().out
    assert main(["train", "--config", recipe]) == OK
    assert yaml.safe_load((run / "recipe.yaml").read_text())["action_language"]["letters"] == "abcdef"
    output = tmp_path / "evaluation"
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--output", str(output)]
    assert main([*command, "--controls", "none", "--agent.constrained", "true"]) == OK
    rows = read_predictions(output / "predictions.parquet")
    assert len(rows) == sum(len(episode) for episode in EPISODES)
    assert all(row.predicted is not None for row in rows)


def test_without_ending_constrained_decoding_is_an_error(shards, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "--config", str(write_recipe(shards, run, with_ending=False))]) == OK
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--controls", "none"]
    assert main([*command, "--output", str(tmp_path / "free")]) == OK
    assert main([*command, "--output", str(tmp_path / "constrained"), "--agent.constrained", "true"]) == FAILED
    assert "LetterLanguage does not define ending(), which constrained decoding needs" in capsys.readouterr().err


def test_tokens_are_counted_without_pixels(shards, tmp_path, capsys):
    recipe = str(write_recipe(tmp_path / "elsewhere", tmp_path / "run"))
    assert main(["inspect", str(shards), "--split", "test", "--config", recipe, "--budget", "10"]) == OK
    assert "> 10" in capsys.readouterr().out
    dataset = ShardDataset(shards)
    sentences = replace(tiny.sentences(kinds.byte_level()), language=LetterLanguage())
    assert whole_lengths(dataset, sentences).tolist() == [len(sentences.build(episode)) for episode in dataset]


def test_the_prompt_of_an_endpoint_contains_its_instructions(shards, tmp_path):
    with serving(lambda n, body: Reply("b c")) as (url, requests):
        content = {"agent": "endpoint", "endpoint": url, "model": "m", "action_language": {"name": "letters"}}
        path = tmp_path / "agent.yaml"
        path.write_text(yaml.safe_dump(content))
        output = tmp_path / "out"
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        command += ["--controls", "none"]
        assert main(command) == OK
    assert "Say a row and a column, a to d." in requests[0].body["messages"][0]["content"]
    assert {row.predicted for row in read_predictions(output / "predictions.parquet")} == {Action.tap(0.375, 0.625)}


@pytest.mark.parametrize("tokenizer", [kinds.byte_level(), kinds.sentencepiece()], ids=["byte-level", "sentencepiece"])
def test_constrained_decoding_needs_only_ending(tokenizer):
    language = language_settings({"name": "letters"}).build()
    limits, generator = Limits(tokenizer.eos_token_id, language.max_tokens), torch.Generator().manual_seed(0)
    choose, written = Constrained(tokenizer, language, limits), []
    while not written or not limits.reached(written):
        logits = torch.randn(len(tokenizer), generator=generator)
        written.append(choose(written, int(logits.argmax()), lambda logits=logits: logits))
    text = tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert written[-1] == tokenizer.eos_token_id
    assert language.decode(text) is not None


def test_unknown_settings_are_an_error(shards, tmp_path, capsys):
    assert main(["train", "--config", str(write_recipe(shards, tmp_path / "run", leters="ab"))]) == FAILED
    assert "unknown key action_language.leters; did you mean action_language.letters?" in capsys.readouterr().err
