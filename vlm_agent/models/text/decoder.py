"""Greedy decoding of text models."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

from vlm_agent.models.decoding import CACHE, CausalDecoder, growing_cache
from vlm_agent.sentences import Sentence


class TextDecoder(CausalDecoder):
    @property
    def transformer(self) -> Any:
        return self._model.model

    def forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        cache = growing_cache()
        decoded = self.transformer(input_ids=ids.to(self._model.device), use_cache=True, **{CACHE: cache})
        return cache, decoded.last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(hidden)
