"""Constrained decoding: every answer is an action.

The most likely token is chosen among those after which the text is a prefix of an action that can be completed within
the token limit: near the limit, a quoted text must close its quotation mark. The end mark may follow only a complete
action. So every answer is an action and ends within the limit, because each byte of a completion is a token and enough
tokens are left for all of them.

The grammar library llguidance 1.9.1 is not used, because three guarantees would be lost. A context-free grammar of the
binned language accepts `swipe from 7 90 to 7 90`, a swipe that is a tap. With a SentencePiece tokenizer, whose decoder
drops the leading space, it accepts no token of `tap at 7 90`. And its masks do not depend on the number of tokens left,
so the limit may cut off a quoted text.
"""

import codecs
import json
import re
from collections.abc import Callable

import torch
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.decoding.greedy import Limits
from vlm_agent.errors import CheckpointError, UserError

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
    vocabulary, added = tokenizer.get_vocab(), tokenizer.added_tokens_decoder
    table: list[bytes | None] = [None] * (max(vocabulary.values()) + 1)  # ids may have gaps
    for token, index in vocabulary.items():
        if index not in added:
            table[index] = pieces(token)
        elif not added[index].special:
            table[index] = added[index].content.encode()
    if missing := {bytes([value]) for value in (*range(0x20, 0x7F), *range(0x80, 0xC0))} - set(table):
        raise CheckpointError(f"this tokenizer cannot write every text: it has no token for the byte {min(missing)!r}")
    return table, drops_space


_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}


def _from_byte_level(token: str) -> bytes | None:
    """None for a token with a letter that stands for no byte; it is never chosen."""
    return bytes(map(_BYTES.__getitem__, token)) if _BYTES.keys() >= set(token) else None


def _from_sentencepiece(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(_SPACE, " ").encode()


_BEYOND_ASCII = ("", "", "ü", "中", "😀")
"""Placeholders for an incomplete character, by its bytes; languages treat those of a length alike."""


class Constrained:
    """A `Choice` for `greedy.py`.

    `ending`: completes an answer that has more than an action, such as a plan; None: `language.ending`.

    Raises UserError for a language without `ending`, and CheckpointError for a tokenizer that `token_bytes` does not
    support.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        language: ActionLanguage,
        limits: Limits,
        ending: Callable[[str], str | None] | None = None,
    ) -> None:
        if not language.has_ending:
            raise UserError(
                f"{type(language).__name__} does not define ending(), which constrained decoding needs; decode freely "
                "(without --agent.constrained), or choose another action language"
            )
        self._bytes, self._drops_space = token_bytes(tokenizer)
        self._ending, self._limits = language.ending if ending is None else ending, limits

    def __call__(self, written: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
        spelt = self._spelt(written)
        if self._may_follow(spelt, len(written), best):
            return best
        # A stable sort breaks ties by the lower id, on every device and in every batch.
        ranked = logits().float().sort(descending=True, stable=True).indices.tolist()
        for token in ranked:
            if self._may_follow(spelt, len(written), token):
                return token
        raise ValueError(f"no token continues {spelt!r}, although it is a prefix of an action")

    def _may_follow(self, spelt: bytes, tokens: int, token: int) -> bool:
        if token == self._limits.end_mark:
            return self._tokens_to_end(spelt) == 0
        if token >= len(self._bytes) or not (continued := self._bytes[token]):
            return False
        needed = self._tokens_to_end(spelt + continued)
        return needed is not None and tokens + 1 + needed + 1 <= self._limits.max_tokens

    def _tokens_to_end(self, spelt: bytes) -> int | None:
        """An upper bound of the tokens that complete `spelt` to an action, without the end mark; None if none do."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(spelt.removeprefix(b" ") if self._drops_space else spelt)
        except UnicodeDecodeError:
            return None
        unfinished = decoder.getstate()[0]
        if unfinished[:1] == b"\xed" and unfinished[1:] >= b"\xa0":
            return None  # a surrogate, which the decoder detects a byte late
        missing = _bytes_missing(unfinished)
        ending = self._ending(text + _BEYOND_ASCII[len(unfinished) + missing])
        return None if ending is None else len(ending.encode()) + missing

    def _spelt(self, written: list[int]) -> bytes:
        return b"".join(self._bytes[token] or b"" for token in written)


def _bytes_missing(unfinished: bytes) -> int:
    """The number of missing bytes of a character that starts with `unfinished`."""
    if not unfinished:
        return 0
    length = 4 if unfinished[0] >= 0xF0 else 3 if unfinished[0] >= 0xE0 else 2
    return length - len(unfinished)
