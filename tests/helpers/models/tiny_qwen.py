"""Tiny Qwen-VLs with random weights: all three families, with everything in them that the big ones have."""

import torch
from helpers import tiny

from vlm_agent.models.build import Vocabulary, build_model, build_tokenizer
from vlm_agent.recipe.model import ModelRecipe

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}

CONFIGS = {
    "qwen2_vl": {
        "text_config": _TEXT | {"rope_parameters": _ROPE},
        "vision_config": {
            "embed_dim": 16,
            "hidden_size": 32,
            "depth": 2,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
        },
    },
    "qwen2_5_vl": {
        "text_config": _TEXT | {"rope_parameters": _ROPE},
        "vision_config": {
            "hidden_size": 16,
            "out_hidden_size": 32,
            "depth": 2,
            "num_heads": 2,
            "intermediate_size": 24,
            "patch_size": 4,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
    },
    "qwen3_vl": {
        "text_config": _TEXT | {"head_dim": 8, "rope_parameters": _ROPE | {"mrope_interleaved": True}},
        "vision_config": {
            "hidden_size": 16,
            "out_hidden_size": 32,
            "depth": 3,
            "num_heads": 2,
            "intermediate_size": 24,
            "patch_size": 4,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    },
}
FAMILIES = tuple(CONFIGS)


def recipe(family: str, **keys) -> ModelRecipe:
    """Screens of at most 24 tokens (a token is 8 × 8 pixels)."""
    config = {"model_type": family, "tie_word_embeddings": False} | CONFIGS[family]
    limits = {"min_pixels": 4 * 64, "max_pixels": 24 * 64}
    return ModelRecipe(**{"vlm": {"config": config}, "word_tokenizer": {"vocabulary": 1000}} | limits | keys)


def tokenizer(given: ModelRecipe):
    texts = [tiny.episode().goal, "world", *(element.text or element.type for element in tiny.ELEMENTS)]
    return build_tokenizer(given, Vocabulary(tiny.LANGUAGE.vocabulary(), texts))


def model(given: ModelRecipe, words):
    """Random weights, float32, evaluation mode."""
    torch.manual_seed(0)
    return build_model(given, words).eval()
