"""Auto-UI at its smallest: a T5 of two layers a side, features of 3 vectors of 6 numbers, and sentences of steps."""

from collections.abc import Sequence

import numpy as np
import torch
from helpers import tiny
from transformers import PreTrainedTokenizerBase, T5Config

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.models.auto_ui.model import AutoUi, AutoUiConfig
from vlm_agent.sentences import Sentence

T5 = {
    "model_type": "t5",
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "dropout_rate": 0.0,
}
FEATURES = {"tokens": 3, "size": 6}


def config(vocabulary: int, tied: bool = False, **keys) -> AutoUiConfig:
    content = {key: value for key, value in T5.items() if key != "model_type"}
    text = T5Config(**content | {"vocab_size": vocabulary, "tie_word_embeddings": tied} | keys)
    return AutoUiConfig(text, FEATURES, tie_word_embeddings=tied)


def model(vocabulary: int, tied: bool = False, **keys) -> AutoUi:
    """Random weights, float32, evaluation mode; every weight takes part in the logits."""
    torch.manual_seed(0)
    built = AutoUi(config(vocabulary, tied, **keys)).eval()
    with torch.no_grad():
        for weights in built.parameters():
            weights.add_(torch.randn_like(weights) * 0.1)
    return built


def sentence(words: PreTrainedTokenizerBase, number: int, screens: int = 1, target: bool = True) -> Sentence:
    """The `number`-th step: its source grows with the number, its target has a plan and a decision."""
    rng = np.random.default_rng(number)
    one = Sentence(about=f"step {number}")
    one.read(words.encode("open settings " * (1 + number)))
    for _ in range(screens):
        one.see(rng.normal(size=(FEATURES["tokens"], FEATURES["size"])).astype(np.float16), 0)
    if target:
        kind = number % len(ACTION_NAMES)
        one.learn(words.encode("world " * (1 + number % 3)), role="plan")
        one.learn([*words.encode(tiny.LANGUAGE.encode(tiny.ACTIONS[number % 3])), words.eos_token_id], kind)
    return one


def sentences(words: PreTrainedTokenizerBase, count: int = 4, screens: Sequence[int] = (1,)) -> list[Sentence]:
    return [sentence(words, number, screens[number % len(screens)]) for number in range(count)]
