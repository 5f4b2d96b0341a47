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
from collections.abc import Callable

import torch
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.decoding.greedy import Limits
from vlm_agent.agents.decoding.token_bytes import token_bytes
from vlm_agent.errors import UserError

_BEYOND_ASCII = "ü"
"""A placeholder for an incomplete character; languages treat all characters beyond ASCII alike."""


class Constrained:
    """A `Choice` for `greedy.py` and `sources.py`.

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
        if self.allows(written, best):
            return best
        # A stable sort breaks ties by the lower id, on every device and in every batch.
        ranked = logits().float().sort(descending=True, stable=True).indices.tolist()
        for token in ranked:
            if self.allows(written, token):
                return token
        raise ValueError(f"no token continues {self._spelt(written)!r}, although it is a prefix of an action")

    def allows(self, written: list[int], token: int) -> bool:
        """Whether `token` may follow `written`, the allowed tokens so far."""
        if token == self._limits.end_mark:
            return self._tokens_to_end(written) == 0
        if token >= len(self._bytes) or not self._bytes[token]:
            return False
        needed = self._tokens_to_end([*written, token])
        return needed is not None and len(written) + 1 + needed + 1 <= self._limits.max_tokens

    def _tokens_to_end(self, written: list[int]) -> int | None:
        """An upper bound of the tokens that complete `written` to an action, without the end mark; None if none do."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(self._spelt(written))
        except UnicodeDecodeError:
            return None
        unfinished = decoder.getstate()[0]
        if (
            unfinished[:1] == b"\xed" and unfinished[1:] >= b"\xa0"
        ):  # a surrogate, which the decoder detects a byte late
            return None
        ending = self._ending(text + _BEYOND_ASCII if unfinished else text)
        return None if ending is None else len(ending.encode()) + _bytes_missing(unfinished)

    def _spelt(self, written: list[int]) -> bytes:
        spelt = b"".join(self._bytes[token] or b"" for token in written)
        return spelt.removeprefix(b" ") if self._drops_space else spelt


def _bytes_missing(unfinished: bytes) -> int:
    """The number of missing bytes of a character that starts with `unfinished`."""
    if not unfinished:
        return 0
    length = 4 if unfinished[0] >= 0xF0 else 3 if unfinished[0] >= 0xE0 else 2
    return length - len(unfinished)
