"""Lengths of whole episodes, counted without pixels, equal those of the built sentences."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, Episode, UiElement
from vlm_agent.errors import RecipeError
from vlm_agent.geometry import TAP_DISTANCE
from vlm_agent.models import build
from vlm_agent.models import pretrained as sources
from vlm_agent.models.family import processor_of
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences.image_sizes import FittedScreens, FixedScreens
from vlm_agent.sentences.templates import PLAIN
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.recipe_sentences import context_length, vocabulary_of, whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule


def _gestures(count: int) -> list[Action]:
    rng = np.random.default_rng(0)
    starts = rng.random((count, 2))
    ends = np.clip(starts + rng.normal(size=(count, 2)) * TAP_DISTANCE, 0, 1)
    edges = [Action.tap(0, 0), Action.tap(1, 1), Action.swipe((0, 0), (1, 1)), Action.swipe((1, 0.5), (0.95, 0.5))]
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return edges + [Action.swipe(tuple(start), tuple(end)) for start, end in pairs]


@pytest.fixture
def episodes():
    texts = ["", "a", "grüße 👋", "a", "press back", "</s>", "123 45"]
    gestures = _gestures(60)
    plain = [tiny.episode(0), tiny.episode(1, tiny.ACTIONS[:1]), tiny.episode(2, tuple(gestures))]
    typing = tiny.episode(3, (*(Action.type_text(text) for text in texts), Action.press("home"), Action.impossible()))
    odd = [
        Episode(str(9 + k), "general", goal, plain[0].steps) for k, goal in enumerate(["", "open settings 0", "Ω </s>"])
    ]
    later = (
        *(action for text in texts for action in (Action.open_app(text), Action.answer(text))),
        *(Action.long_press(y, x) for y, x in np.random.default_rng(1).random((20, 2)).tolist()),
        *(Action.wait(), Action.recents(), Action.wait()),
    )
    return [*plain, typing, *odd, tiny.episode(4, later)]


def chat_tokenizer():
    return tiny_qwen.tokenizer(tiny_qwen.recipe("qwen2_5_vl"))


WRITERS = {
    "plain": lambda bins: TrajectorySentences(
        tiny.tokenizer(), BinnedLanguage(bins), FixedScreens(tiny.SCREEN, 8), PLAIN
    ),
    "named": lambda bins: TrajectorySentences(
        tiny.tokenizer(), NamedLanguage(bins), FixedScreens(tiny.SCREEN, 8), PLAIN
    ),
    "chat": lambda bins: TrajectorySentences(
        chat_tokenizer(), BinnedLanguage(bins), FittedScreens(4 * 64, 24 * 64, 8), CHAT_TURNS
    ),
}


@pytest.mark.parametrize("bins", [10, 7])
@pytest.mark.parametrize("writer", WRITERS)
def test_counts_are_the_lengths_of_the_sentences(episodes, writer, bins, tmp_path):
    dataset = ShardDataset(tiny.write_shards(tmp_path, episodes))
    sentences = WRITERS[writer](bins)
    counts = whole_lengths(dataset, sentences)
    assert counts.tolist() == [len(sentences.build(episode)) for episode in dataset]
    assert counts.dtype == np.int64


def test_a_swipe_that_may_name_its_target_is_counted_as_it_is_written(episodes, tmp_path):
    shown = UiElement((0.0, 0.0, 0.1, 0.1), "a long name that is nowhere")
    walk = tiny.episode(30, (Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.tap(0.05, 0.05)))
    walk = replace(walk, steps=(replace(walk.steps[0], elements=()), replace(walk.steps[1], elements=(shown,))))
    walks = [replace(walk, id=f"walk {number}", goal=f"walk {number}") for number in range(10)]
    dataset = ShardDataset(tiny.write_shards(tmp_path, [*episodes, *walks]))
    sentences = replace(WRITERS["named"](tiny.BINS), language=NamedLanguage(tiny.BINS, name_swipe_targets=True))
    counted = whole_lengths(dataset, sentences).tolist()
    assert counted == [len(sentences.build(episode, with_swipe_targets=True)) for episode in dataset]
    assert len(set(counted[-10:])) == 2  # some swipes name the target


def test_equal_texts_are_tokenised_once(tmp_path):
    actions = (Action.tap(0.51, 0.52), Action.tap(0.58, 0.57), *[Action.press("back")] * 2, Action.complete())
    dataset = ShardDataset(tiny.write_shards(tmp_path, [tiny.episode(0, actions)] * 5))
    sentences = tiny.sentences(tiny.tokenizer())
    whole_lengths(dataset, sentences)
    assert sentences._cached_count.cache_info().misses == 6  # the start, the goal, the cue, and three actions


def test_counting_no_episodes_returns_no_counts(tmp_path):
    empty = ShardDataset(tiny.write_shards(tmp_path, [tiny.episode()]), split="test")
    assert whole_lengths(empty, tiny.sentences(tiny.tokenizer())).tolist() == []


@pytest.fixture
def recipe(episodes, tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", episodes)
    return _read(tiny.recipe(shards, tmp_path / "run"), tmp_path)


def _read(content: dict, folder: Path):
    path = folder / "recipe.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return read_recipe(path)


def test_a_recipes_sentences_are_those_that_training_builds(recipe):
    shards = ShardDataset(Path(recipe.data.shards))
    tokenizer = build.build_tokenizer(recipe.model, vocabulary_of(recipe, shards, list(range(len(shards)))))
    model = build.build(recipe.model, tokenizer, recipe.action_language.build())
    trained = processor_of(model.config).sentences(tokenizer, recipe.action_language.build())
    counts = whole_lengths(shards, ShardDataModule(recipe).sentences)
    assert counts.tolist() == [len(trained.build(episode)) for episode in shards]


def test_no_model_is_built_and_no_weight_is_read(recipe, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a model was built")

    monkeypatch.setattr(build, "build_model", refuse)
    for name in ("whole_model", "language_model", "vision_tower"):
        monkeypatch.setattr(sources, name, refuse)
    for name in ("family.whole_model", "llama_vit.family.language_model", "llama_vit.family.vision_tower"):
        monkeypatch.setattr(f"vlm_agent.models.{name}", refuse)
    assert ShardDataModule(recipe).sentences.screens == FixedScreens(tiny.SCREEN, 8)
    assert context_length(ShardDataModule(recipe).config) == 2048  # transformers' default


def test_a_base_determines_tokenizer_screen_size_and_context(recipe, tmp_path):
    run, words = tmp_path / "run", tiny.tokenizer()
    build.save(tiny.model(len(words)), words, run)
    _read(tiny.recipe(tmp_path / "shards", run), run)
    content = tiny.recipe(tmp_path / "shards", tmp_path / "second")
    content["model"] = {"base": str(run)}
    second = _read(content, tmp_path / "second")
    sentences = ShardDataModule(second).sentences
    assert sentences.screens == FixedScreens(tiny.SCREEN, tiny.GRID[0] * tiny.GRID[1])
    assert sentences.tokenizer.get_vocab() == words.get_vocab()
    assert context_length(ShardDataModule(second).config) == 2048


def test_a_model_that_names_no_context_length_needs_a_budget(recipe, tmp_path):
    content = tiny.recipe(tmp_path / "shards", tmp_path / "run")
    content["model"]["language_model"] = {"config": {"model_type": "mamba"}}
    with pytest.raises(RecipeError, match="give one with --budget"):
        context_length(ShardDataModule(_read(content, tmp_path)).config)
