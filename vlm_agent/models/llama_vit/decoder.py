"""Greedy decoding of Llama+ViT: forward passes over whole sentences, and single tokens behind a shared cache."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

from vlm_agent.models.decoding import CACHE, CausalDecoder, growing_cache
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.llama_vit.screen_cache import ScreenCache
from vlm_agent.sentences import Sentence


class LlamaViTDecoder(CausalDecoder):
    def __init__(self, model: LlamaViT) -> None:
        super().__init__(model)
        self._screens = ScreenCache(model)

    @property
    def transformer(self) -> Any:
        return self._model.language_model.model

    def forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        model, cache = self._model, growing_cache()
        tokens = self._screens([screen for sentence in sentences for screen in sentence.screens])
        embeddings = model.embed_seen(ids.to(model.device), tokens)
        decoded = self.transformer(inputs_embeds=embeddings, use_cache=True, **{CACHE: cache})
        return cache, decoded.last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.logits(hidden)
