"""A tiny LLaVA with random weights: screens of 32 by 32 pixels with 16 visual tokens."""

from helpers.models import tiny_qwen

from vlm_agent.recipe.model import ModelRecipe

TEXT = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 8,
    "image_size": 32,
}
CONFIG = {"model_type": "llava", "text_config": TEXT, "vision_config": VISION, "image_seq_length": 16}


def recipe(**keys) -> ModelRecipe:
    return ModelRecipe(**{"vlm": {"config": CONFIG}, "word_tokenizer": {"vocabulary": 1000}} | keys)


tokenizer, model = tiny_qwen.tokenizer, tiny_qwen.model
