"""Small tokenizers of the kinds that language models bring."""

import json

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = [
    'tap at 7 90 swipe from 3 44 to 40 48 Input text "grüße" press back press home press enter complete impossible',
    "Öl für Grüße, 東京の天気, погода в Москве, 👋🏽 café naïve — “quoted” \\n \\u0000",
]
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "clean_up_tokenization_spaces": False}


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer like Qwen's and Llama 3's: pieces of bytes, so that a character may be cut anywhere."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_SPECIAL)


def normalising(normalizer: normalizers.Normalizer) -> PreTrainedTokenizerFast:
    """`byte_level` with a normaliser; Qwen's has NFC."""
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.normalizer = normalizer
    return tokenizer


def sentencepiece() -> PreTrainedTokenizerFast:
    """A tokenizer like Llama 2's: pieces of text with `▁` for spaces, one in front of all, and bytes for what is in no
    piece."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False)
    learner.train_from_iterator([TEXTS[0].replace("ü", "u")], trainer)
    vocabulary, merges = learner.get_vocab(), _merges(learner)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))  # noqa: S106
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(pieces)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **_SPECIAL)  # noqa: S106


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
