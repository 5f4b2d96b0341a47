"""Decoding that says nothing but actions.

In order of likelihood, the first token is taken that keeps what is said the beginning of some action, and leaves room
to end it: with few tokens left, typed text has to close its quotation mark. The end mark may follow a whole action and
nothing else. So every answer is an action, and ends within the limit: where a token was taken, the bytes that end the
action from there are themselves tokens, and there are enough of them left.
"""

import codecs
from collections.abc import Callable

import torch
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.greedy import Limits
from vlm_agent.agents.token_bytes import token_bytes

_BEYOND_ASCII = "ü"
"""Stands for a character of which only the first bytes are there: to a language, one such is like another."""


class Constrained:
    """A `Choice` for `greedy.py`; ValueError where the tokenizer is of a kind that `token_bytes` does not know."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, language: ActionLanguage, limits: Limits):
        self._bytes, self._drops_space = token_bytes(tokenizer)
        self._language, self._limits = language, limits

    def __call__(self, said: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
        if self.allows(said, best):
            return best
        # Stable, so that equal logits go to the lower id whatever device or batch they come from.
        ranked = logits().float().sort(descending=True, stable=True).indices.tolist()
        for token in ranked:
            if self.allows(said, token):
                return token
        raise ValueError(f"no token continues {self._said(said)!r}, though every answer begins an action")

    def allows(self, said: list[int], token: int) -> bool:
        """Whether `token` may follow `said`, which was allowed itself."""
        if token == self._limits.end_mark:
            return self._tokens_to_end(said) == 0
        if token >= len(self._bytes) or not self._bytes[token]:
            return False
        needed = self._tokens_to_end([*said, token])
        return needed is not None and len(said) + 1 + needed + 1 <= self._limits.max_tokens

    def _tokens_to_end(self, said: list[int]) -> int | None:
        """How many tokens, at most, make `said` an action, the end mark not counted; None where none do."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(self._said(said))
        except UnicodeDecodeError:
            return None
        unfinished = decoder.getstate()[0]
        if unfinished[:1] == b"\xed" and unfinished[1:] >= b"\xa0":  # a surrogate, which the decoder sees a byte late
            return None
        ending = self._language.ending(text + _BEYOND_ASCII if unfinished else text)
        return None if ending is None else len(ending.encode()) + _bytes_missing(unfinished)

    def _said(self, said: list[int]) -> bytes:
        spelt = b"".join(self._bytes[token] for token in said)
        return spelt.removeprefix(b" ") if self._drops_space else spelt


def _bytes_missing(unfinished: bytes) -> int:
    """What a character of which these are the first bytes lacks."""
    if not unfinished:
        return 0
    length = 4 if unfinished[0] >= 0xF0 else 3 if unfinished[0] >= 0xE0 else 2
    return length - len(unfinished)
