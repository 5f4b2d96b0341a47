"""A BERT-like sentence encoder with random weights, as a folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = ("[PAD]", "[UNK]", "open", "settings", "buy", "milk", "a", "clock", "0", "1", "2", "3")


def write_encoder(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **shape)).eval().save_pretrained(folder)
    names = {"pad_token": WORDS[0], "unk_token": WORDS[1]}
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder
