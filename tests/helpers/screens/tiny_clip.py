"""A CLIP with random weights, as a folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast

from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.icons.clip import description


def write_clip(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    splitter = pre_tokenizers.Whitespace()
    words = {word for name in MEANINGS for word, _ in splitter.pre_tokenize_str(description(name))}
    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "[END]", *sorted(words)))}
    tower = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    text = {**tower, "vocab_size": len(vocabulary), "max_position_embeddings": 24}
    text |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**tower, "image_size": 32, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    CLIPModel(config).eval().save_pretrained(folder)
    unknown = "[UNK]"
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = splitter
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[END]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder
