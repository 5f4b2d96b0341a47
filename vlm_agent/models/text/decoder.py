"""Greedy decoding of text models."""

from collections.abc import Sequence

import torch
from transformers import Cache

from vlm_agent.models.decoding import CausalDecoder, growing_cache
from vlm_agent.sentences import Sentence


class TextDecoder(CausalDecoder):
    def forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        model, cache = self._model, growing_cache()
        decoded = model.model(input_ids=ids.to(model.device), past_key_values=cache, use_cache=True)
        return cache, decoded.last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(hidden)
