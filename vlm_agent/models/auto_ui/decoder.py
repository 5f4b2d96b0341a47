"""Greedy decoding of Auto-UI: an encoder pass a sentence, then single tokens of many sentences together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from vlm_agent.models.auto_ui.collate import screen_features, sources
from vlm_agent.models.auto_ui.model import AutoUi
from vlm_agent.models.decoding import PrefilledSequence, growing_cache
from vlm_agent.sentences import Sentence


class EncodedCache(EncoderDecoderCache):
    """The decoder's keys and values, and what they were computed from: `encoded` (B, L, width) and its mask (B, L)."""

    def __init__(self, encoded: torch.Tensor, mask: torch.Tensor) -> None:
        super().__init__(growing_cache(), DynamicCache())
        self.encoded, self.mask = encoded, mask

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        for cache in (self.self_attention_cache, self.cross_attention_cache):
            cache.batch_select_indices(indices)
        self.encoded, self.mask = self.encoded[indices], self.mask[indices]


@dataclass
class DecodingBatch:
    """B sentences in decoding. `logits` (B, vocabulary): of the next token of each."""

    cache: EncodedCache
    logits: torch.Tensor

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all other sentences."""
        indices = torch.tensor(rows, device=self.logits.device)
        self.cache.batch_select_indices(indices)
        self.logits = self.logits[indices]


class AutoUiDecoder:
    """Sentences hold sources only; the target is decoded."""

    def __init__(self, model: AutoUi) -> None:
        self._model = model

    def prefill(self, sentences: Sequence[Sentence]) -> None:
        """Every step has an encoder input of its own."""

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        batch = self.begin_batch([sentence])
        return PrefilledSequence(batch.cache, batch.logits[0], 1)

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """All rows of the cache have equally many tokens, so positions and mask follow from the cache."""
        if not isinstance(cache, EncodedCache):
            raise TypeError(f"the cache is a {type(cache).__name__}; take that of begin()")
        return self._next(ids.to(self._model.device), cache)

    def begin_batch(self, sentences: Sequence[Sentence]) -> DecodingBatch:
        """Encodes all sentences and decodes the start token."""
        model = self._model
        batch = sources([sentence.input_ids for sentence in sentences])
        batch |= screen_features([sentence.screens for sentence in sentences])
        here = {name: value.to(model.device) for name, value in batch.items()}
        cache = EncodedCache(model.encode(**here), here["attention_mask"])
        start = torch.full((len(sentences), 1), model.config.start_token_id, device=model.device)
        return DecodingBatch(cache, self._next(start, cache)[:, -1])

    def step_batch(self, ids: torch.Tensor, batch: DecodingBatch) -> torch.Tensor:
        """Appends a token to each sentence, int64 (B,), and returns the logits (B, vocabulary) of the next."""
        batch.logits = self._next(ids.to(self._model.device)[:, None], batch.cache)[:, -1]
        return batch.logits

    def _next(self, ids: torch.Tensor, cache: EncodedCache) -> torch.Tensor:
        hidden = self._model.decode(ids, cache.encoded, cache.mask, cache)
        return self._model.logits(hidden)
