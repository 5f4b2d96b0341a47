"""The bytes of every token of a vocabulary.

Decoding single tokens to text is not enough, because a token that is part of a character decodes to U+FFFD.
"""

import json
import re
from functools import cache

from transformers import PreTrainedTokenizerBase

from vlm_agent.errors import CheckpointError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "▁"


def token_bytes(tokenizer: PreTrainedTokenizerBase) -> tuple[list[bytes | None], bool]:
    """The bytes of each id, None for special tokens; and whether decoding drops a leading space.

    Supports byte-level BPE (Qwen, Llama 3, tokenizers trained here) and SentencePiece with byte fallback (Llama 2).
    Raises CheckpointError for any other kind, and for a vocabulary that cannot write every text.
    """
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    decoder = backend["decoder"] or {}
    steps = {step["type"]: step for step in decoder.get("decoders", [decoder]) if step}
    if "ByteLevel" in steps:
        pieces, drops_space = _from_byte_level, False
    elif "ByteFallback" in steps:
        pieces, drops_space = _from_sentencepiece, "Strip" in steps or "Metaspace" in steps
    else:
        raise CheckpointError(
            f"constrained decoding needs a tokenizer that can write every byte; this one, {type(tokenizer).__name__}, "
            f"is {backend['model']['type']} without bytes (decoder: {', '.join(steps) or 'none'}); decode freely, "
            "without --agent.constrained"
        )
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    table: list[bytes | None] = [pieces(token) for token in tokens]
    for index, added in tokenizer.added_tokens_decoder.items():
        table[index] = None if added.special else added.content.encode()
    if missing := {bytes([value]) for value in (*range(0x20, 0x7F), *range(0x80, 0xC0))} - set(table):
        raise CheckpointError(f"this tokenizer cannot write every text: it has no token for the byte {min(missing)!r}")
    return table, drops_space


def _from_byte_level(token: str) -> bytes:
    return bytes(map(_byte_level_alphabet().__getitem__, token))


def _from_sentencepiece(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(_SPACE, " ").encode()


@cache
def _byte_level_alphabet() -> dict[str, int]:
    """Character → byte: visible Latin-1 characters stand for themselves, U+0100 onwards for the other bytes (GPT-2)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(visible)]
    return {chr(value): value for value in visible} | {chr(0x100 + rank): value for rank, value in enumerate(others)}
