"""A text model at its smallest: a Llama of 30,000 weights, which reads the elements of `tiny`'s screens."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from helpers import tiny
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.episodes import Episode, UiElement
from vlm_agent.models.family import Processor, family, processor_of
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.sentences.html import SCREEN_PHRASES, screen_html

LANGUAGE = ElementIndexLanguage()


def episode(number: int = 0) -> Episode:
    """`tiny.episode` with a screen of other elements at every step."""
    whole = tiny.episode(number)
    steps = [
        replace(step, elements=(*tiny.ELEMENTS, UiElement((0.1, 0.1, 0.1, 0.1), f"Page {place} of {number}")))
        for place, step in enumerate(whole.steps)
    ]
    return replace(whole, steps=tuple(steps))


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    words = LANGUAGE.vocabulary()
    texts = [text for number in range(4) for text in _texts(episode(number))]
    return build_word_tokenizer(texts, replace(words, phrases=(*words.phrases, *SCREEN_PHRASES)), 1000)


def _texts(one: Episode) -> list[str]:
    return [one.goal, *(screen_html(step.screen) for step in one.steps)]


def model(words: PreTrainedTokenizerBase, model_type: str = "llama", **config) -> PreTrainedModel:
    """Random weights, float32, evaluation mode."""
    torch.manual_seed(0)
    shape = tiny.LLAMA | {"model_type": model_type, "vocab_size": len(words)} | config
    if model_type == "qwen3":
        shape["head_dim"] = 16
    if model_type == "mistral":
        shape["sliding_window"] = None
    kind = family(model_type)
    return kind.prepare(kind.model(AutoConfig.for_model(**shape))).eval()


def processor(model_type: str = "llama") -> Processor:
    return processor_of(AutoConfig.for_model(model_type))


def recipe(shards: Path, output: Path, **model) -> dict:
    """What a YAML recipe holds: three steps of training from nothing."""
    everything = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "full")
    return {
        "output": str(output),
        "model": {"language_model": {"config": tiny.LLAMA}, "word_tokenizer": {"vocabulary": 1000}, "train": everything}
        | model,
        "action_language": {"name": "element_index"},
        "data": {"shards": str(shards)},
        "training": {
            "steps": 3,
            "batch_size": 2,
            "optimizer": {"name": "adamw", "learning_rate": 2e-3},
            "warmup_steps": 1,
            "log_steps": 1,
        },
    }
