"""Greedy decoding of Llama+ViT: forward passes over whole sentences, and single tokens behind a shared cache."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from transformers import Cache

from vlm_agent.models.decoding import CACHE, CausalDecoder, growing_cache
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.sentences import Sentence

KEPT_BYTES = 1 << 28


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


class ScreenCache:
    """The visual tokens of the most recently used screens, at most `kept_bytes`, for one model whose weights do not
    change.

    An acting agent processes its whole history at every step; an evaluation processes the same screens with and without
    history, and the same grey screen thousands of times. With a small language model, the encoder is most of the work.

    On a CPU, screens are encoded one by one, which is as fast there, so that the result for a screen is bit-identical
    whatever else is requested. On a GPU, all new screens are encoded in one batch.
    """

    def __init__(self, model: LlamaViT, kept_bytes: int = KEPT_BYTES) -> None:
        self._model, self._kept_bytes = model, kept_bytes
        self._tokens: OrderedDict[tuple, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, screens: Sequence[np.ndarray]) -> torch.Tensor:
        """uint8 screens (3, height, width), of the model's size, to visual tokens (screens, tokens, hidden)."""
        kind = self._model.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        keys = [(precision, blake2b(screen.tobytes(), digest_size=16).digest()) for screen in screens]
        with self._lock:
            known = {key: self._tokens[key] for key in keys if key in self._tokens}
        new = {key: screen for key, screen in zip(keys, screens, strict=True) if key not in known}
        known |= self._look(new)
        self._keep({key: known[key] for key in keys})
        return torch.stack([known[key] for key in keys])

    def _look(self, new: dict[tuple, np.ndarray]) -> dict[tuple, torch.Tensor]:
        together = 1 if self._model.device.type == "cpu" else max(1, len(new))
        found: dict[tuple, torch.Tensor] = {}
        keys = list(new)
        for start in range(0, len(keys), together):
            some = keys[start : start + together]
            screens = torch.from_numpy(np.stack([new[key] for key in some])).to(self._model.device)
            # Copies: a view would keep the whole batch in memory.
            found |= zip(some, (tokens.clone() for tokens in self._model.see(screens)[1]), strict=True)
        return found

    def _keep(self, used: dict[tuple, torch.Tensor]) -> None:
        with self._lock:
            for key, tokens in used.items():
                self._tokens[key] = tokens
                self._tokens.move_to_end(key)
            size = sum(tokens.nbytes for tokens in self._tokens.values())
            while size > self._kept_bytes:
                size -= self._tokens.popitem(last=False)[1].nbytes
