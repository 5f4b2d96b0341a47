"""Greedy decoding of Llama+ViT: forward passes over whole sentences, and single tokens behind a shared cache."""

from collections.abc import Sequence

import torch
from transformers import Cache

from vlm_agent.models.decoding import LOGITS_AT_ONCE, Prefill, PrefilledSequence, growing_cache
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.llama_vit.screen_cache import ScreenCache
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.packing import pad


class LlamaViTDecoder:
    """Needs an attention implementation that accepts masks: "sdpa", not flash-attn."""

    def __init__(self, model: LlamaViT) -> None:
        self._model, self._screens = model, ScreenCache(model)

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences, padded on the right, where causal attention ignores them."""
        batch = pad(sentences)
        cache, hidden = self._forward(sentences, batch["input_ids"])
        hidden = hidden[:, :-1][batch["labels"][:, 1:] != IGNORED]
        logits = self._model.logits
        best = [token for part in hidden.split(LOGITS_AT_ONCE) for token in logits(part).argmax(-1).tolist()]
        return Prefill(cache, best, lambda index: logits(hidden[index]), [range(len(one)) for one in sentences])

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        cache, hidden = self._forward([sentence], torch.tensor([sentence.input_ids]))
        return PrefilledSequence(cache, self._model.logits(hidden[0, -1]), len(sentence))

    def _forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        """The cache, and the hidden states (B, L, width)."""
        model, cache = self._model, growing_cache()
        tokens = self._screens([screen for sentence in sentences for screen in sentence.screens])
        embeddings = model.embed_seen(ids.to(model.device), tokens)
        decoded = model.language_model.model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True)
        return cache, decoded.last_hidden_state

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        device = self._model.device
        return self._model(
            input_ids=ids.to(device),
            attention_mask=mask[:, None].to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=True,
        ).logits
