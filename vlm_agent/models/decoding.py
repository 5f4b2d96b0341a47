"""The interface between decoding and model families, and a key-value cache that grows in place.

transformers' cache concatenates, which copies the whole history of every sentence for every token. The cache here
writes a decoded token into spare room behind the history, and copies nothing else.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, cast, runtime_checkable

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.packing import pad

CACHE = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"
"""The name under which transformers' models take the cache: `cache` from 5.24 on."""

LOGITS_AT_ONCE = 512
"""Positions whose logits a decoder computes at a time; with a vocabulary of 152 k tokens, 300 MB in float32."""


@dataclass(frozen=True)
class Prefill:
    """The result of one forward pass over B sentences.

    `cache`: keys and values, a row for each sentence. `best`: the most likely token in place of each supervised one,
    counted through all sentences in order; `logits` returns the logits (vocabulary,) there. `positions`: for each
    sentence, the position that the model gave each of its tokens.
    """

    cache: Cache
    best: list[int]
    logits: Callable[[int], torch.Tensor]
    positions: Sequence[Sequence[int]]


@dataclass(frozen=True)
class PrefilledSequence:
    """One processed sentence: its keys and values, the logits (vocabulary,) of the next token and its position."""

    cache: Cache
    logits: torch.Tensor
    position: int


class Decoder(Protocol):
    """The model interface of decoding; every family has an implementation.

    A decoder may also have `prepare_screen`, a function that pickles: it makes of a screen of a sentence what the
    decoder takes in its place, so that other processes can do this work. The result has the screen's `shape`.
    """

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill | None:
        """None for families, such as encoder-decoder models, in which one pass cannot predict every step."""

    def begin(self, sentence: Sentence) -> PrefilledSequence: ...

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (B, S, vocabulary) after the tokens `ids`, int64 (B, S), which are appended to the cache.

        `positions`: int64 (B, S). `mask`: bool (B, S, cached + S), which of the cached tokens and of these each one
        attends to.
        """


class CausalDecoder(Decoder):
    """Greedy decoding of a causal language model: `transformer` without its head, `logits` float (..., vocabulary) of
    hidden states (..., width)."""

    def __init__(
        self, model: Any, transformer: PreTrainedModel, logits: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._model, self.transformer, self.logits = model, cast("Any", transformer), logits
        # The attention of packed rows accepts no masks, which steps behind a cache need.
        transformer.set_attn_implementation("sdpa")

    @abstractmethod
    def forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        """The cache, and the hidden states (B, L, width), of `ids`, int64 (B, L), those of the sentences, padded."""

    def positions(self, sentence: Sentence) -> Sequence[int]:
        """The position of each token; by default its index."""
        return range(len(sentence))

    def axes(self, positions: torch.Tensor) -> torch.Tensor:
        """The `position_ids` of the transformer for new tokens at `positions`, int64 (B, S)."""
        return positions

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences, padded on the right, where causal attention ignores them."""
        batch = pad(sentences)
        cache, hidden = self.forward(sentences, batch["input_ids"])
        hidden = hidden[:, :-1][batch["labels"][:, 1:] != IGNORED]
        best = [token for part in hidden.split(LOGITS_AT_ONCE) for token in self.logits(part).argmax(-1).tolist()]
        return Prefill(cache, best, lambda index: self.logits(hidden[index]), [*map(self.positions, sentences)])

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        cache, hidden = self.forward([sentence], torch.tensor([sentence.input_ids]))
        return PrefilledSequence(cache, self.logits(hidden[0, -1]), self.positions(sentence)[-1] + 1)

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        device = self._model.device
        decoded = self.transformer(
            input_ids=ids.to(device),
            attention_mask=mask[:, None].to(device),
            position_ids=self.axes(positions.to(device)),
            use_cache=True,
            **{CACHE: cache},
        )
        return self.logits(decoded.last_hidden_state)


class SourceBatch(Protocol):
    """The state of decoding from B encoded sources: encoder states, and keys and values of the decoder.

    `logits`: (B, vocabulary) of the first token of each answer.
    """

    logits: torch.Tensor

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows except `rows`, which become rows 0, 1, … in this order."""


@runtime_checkable
class SourceDecoder(Decoder, Protocol):
    """The interface of an encoder-decoder model, which writes the answers to many sources together.

    A source is a sentence without supervised tokens.
    """

    def begin_batch(self, sentences: Sequence[Sentence]) -> SourceBatch: ...

    def step_batch(self, ids: torch.Tensor, batch: SourceBatch) -> torch.Tensor:
        """Logits (B, vocabulary) after one more token of each row, `ids` int64 (B,)."""


_SPARE_TOKENS = 256
"""Room for tokens behind the history; a longer answer costs one more copy."""


class _GrowingLayer(DynamicLayer):
    """`keys` and `values` are views of the first tokens of larger buffers; tensors set from outside are copied into a
    buffer when they grow."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self._buffers: dict[str, torch.Tensor] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._appended("keys", self.keys, key_states)
        self.values = self._appended("values", self.values, value_states)
        return self.keys, self.values

    def _appended(self, name: str, stored: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
        assert stored is not None  # noqa: S101 (`lazy_initialization` sets both)
        start, end = stored.shape[-2], stored.shape[-2] + new.shape[-2]
        buffer = self._buffers.get(name)
        if buffer is None or stored.data_ptr() != buffer.data_ptr() or end > buffer.shape[-2]:
            buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], end + _SPARE_TOKENS, new.shape[-1])
            buffer[..., :start, :] = stored
        buffer[..., start:end, :] = new
        return buffer[..., :end, :]


def growing_cache() -> Cache:
    return Cache(layer_class_to_replicate=_GrowingLayer)
