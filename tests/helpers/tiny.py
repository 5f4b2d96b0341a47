"""Tiny episodes, models and recipes, with everything in them that the big ones have."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.episodes import Action, Episode, Screen, Step, UiElement
from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.trajectory import TrajectorySentences

SCREEN = (64, 32)
GRID = (4, 2)
BINS = 10
LANGUAGE = BinnedLanguage(BINS)

CONVNEXT = {"model_type": "convnext", "num_stages": 2, "depths": [1, 1], "hidden_sizes": [8, 16], "patch_size": 4}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}

ACTIONS = (
    Action.tap(0.25, 0.75),
    Action.swipe((0.85, 0.55), (0.15, 0.55)),
    Action.type_text('grüße "world" 👋\n'),
    Action.press("enter"),
    Action.complete(),
)
ELEMENTS = (
    UiElement((0.0, 0.0, 0.25, 0.5), "Wi-Fi"),
    UiElement((0.5, 0.0, 0.25, 1.0), "Clear cart"),
    UiElement((0.75, 0.5, 0.25, 0.5), "", "ICON_HOME"),
)


def episode(number: int = 0, actions: tuple[Action, ...] = ACTIONS, size: tuple[int, int] = SCREEN) -> Episode:
    """Screens of noise, different in every step of every episode."""
    rng = np.random.default_rng(number)
    steps = tuple(Step(rng.integers(0, 256, (*size, 3), np.uint8), action, ELEMENTS) for action in actions)
    return Episode(str(number), "general", f"open settings {number}", steps)


def write_shards(folder: Path, episodes: list[Episode], split: str = "train") -> Path:
    """A converted folder with one shard."""
    with ShardWriter(folder / "general.parquet") as shard:
        for item in episodes:
            shard.write(item, split)
    file = {"shard": "general.parquet", "subset": "general", "episodes_written": len(episodes)}
    write_manifest(folder, {"files": [file]})
    return folder


def tokenizer() -> PreTrainedTokenizerBase:
    texts = [episode().goal, "world", *(element.text or element.type for element in ELEMENTS)]
    return build_word_tokenizer(texts, LANGUAGE.vocabulary(), 1000)


def sentences(words: PreTrainedTokenizerBase, grey: bool = False) -> TrajectorySentences:
    return TrajectorySentences(words, LANGUAGE, FixedScreens(SCREEN, GRID[0] * GRID[1]), grey=grey)


def action_ids(writer: TrajectorySentences, action: Action, screen: Screen | None = None) -> list[int]:
    """The tokens of a writable action, with the end mark."""
    return [*writer.ids(writer.action_text(action, screen)), writer.end_mark]


def goal_ids(writer: TrajectorySentences, goal: str) -> list[int]:
    """The tokens that a sentence with this goal begins with."""
    return writer.encode(writer.opening(Episode("", "", goal, ()))).input_ids


def model(vocabulary: int, vision: dict = CONVNEXT, llama: dict | None = None, **config) -> LlamaViT:
    """Random weights, float32, evaluation mode."""
    torch.manual_seed(0)
    text = AutoConfig.for_model(**(LLAMA if llama is None else llama) | {"vocab_size": vocabulary})
    shape = {"screen_size": SCREEN, "visual_grid": GRID} | config
    return LlamaViT(LlamaViTConfig(AutoConfig.for_model(**vision), text, **shape)).eval()


def recipe(shards: Path, output: Path) -> dict:
    """What a YAML recipe holds: three steps of training from nothing."""
    return {
        "output": str(output),
        "model": {
            "language_model": {"config": LLAMA},
            "vision": {"config": CONVNEXT},
            "word_tokenizer": {"vocabulary": 1000},
            "screen_size": list(SCREEN),
            "visual_grid": list(GRID),
            "visual_norm": 0.7,
            "visual_positions": True,
            "element_loss": 0.5,
            "train": dict.fromkeys(("vision", "projector", "embeddings", "language_model", "norm", "head"), "full"),
        },
        "action_language": {"bins": BINS},
        "data": {"shards": str(shards)},
        "training": {
            "steps": 3,
            "batch_size": 2,
            "optimizer": {"name": "muon", "learning_rate": 2e-3},
            "warmup_steps": 1,
            "log_steps": 1,
        },
    }
