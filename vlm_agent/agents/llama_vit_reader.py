"""All that greedy decoding has to know about Llama+ViT: reading whole sentences, and going on from many places at once.

Another model family brings another reader; `greedy.py` asks for nothing else.
"""

from collections.abc import Sequence

import torch
from transformers import Cache

from vlm_agent.agents.greedy import LOGITS_AT_ONCE, Begun, Prefill
from vlm_agent.agents.growing_cache import growing_cache
from vlm_agent.agents.seen_screens import SeenScreens
from vlm_agent.models.llama_vit import LlamaViT
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.packing import lay_side_by_side


class LlamaViTReader:
    """Reads for one model, whose attention must take a mask of its own ("sdpa" does, flash-attn does not)."""

    def __init__(self, model: LlamaViT):
        self._model, self._seen = model, SeenScreens(model)

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences, padded on the right, where causal attention never looks."""
        sides = lay_side_by_side(sentences)
        cache, hidden = self._read(sentences, sides["input_ids"])
        hidden = hidden[:, :-1][sides["labels"][:, 1:] != IGNORED]
        logits = self._model.logits
        best = [token for part in hidden.split(LOGITS_AT_ONCE) for token in logits(part).argmax(-1).tolist()]
        return Prefill(cache, best, lambda index: logits(hidden[index]), [range(len(one)) for one in sentences])

    def begin(self, sentence: Sentence) -> Begun:
        cache, hidden = self._read([sentence], torch.tensor([sentence.input_ids]))
        return Begun(cache, self._model.logits(hidden[0, -1]), len(sentence))

    def _read(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        model, cache = self._model, growing_cache()
        tokens = self._seen([screen for sentence in sentences for screen in sentence.screens])
        embeddings = model.embed_seen(ids.to(model.device), tokens)
        decoded = model.language_model.model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True)
        return cache, decoded.last_hidden_state

    def step(self, ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (B, S, vocabulary) behind the tokens `ids`, int64 (B, S), which the cache holds afterwards.

        `places`, int64 (B, S): the position at which each token stands. `mask`, bool (B, S, cached + S):
        which of the cached tokens, and of these, each one sees.
        """
        device = self._model.device
        return self._model(
            input_ids=ids.to(device),
            attention_mask=mask[:, None].to(device),
            position_ids=places.to(device),
            past_key_values=cache,
            use_cache=True,
        ).logits
