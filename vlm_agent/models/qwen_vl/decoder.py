"""Greedy decoding of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from collections.abc import Sequence

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch.nn import functional
from transformers import Cache

from vlm_agent.models.decoding import CACHE, LOGITS_AT_ONCE, Prefill, PrefilledSequence, accept_masks, growing_cache
from vlm_agent.models.qwen_vl.model import ReadsScreens
from vlm_agent.models.qwen_vl.processor import QwenVLCollator
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pad, places


class QwenVLDecoder:
    def __init__(self, model: ReadsScreens) -> None:
        self._model, self._collate = model, QwenVLCollator(model.config)
        accept_masks(model.language_model)
        self.prepare_screen = self._collate.prepare_screen

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences, padded on the right, where causal attention ignores them."""
        batch = pad(sentences)
        cache, hidden, positions = self._forward(sentences, batch["input_ids"])
        hidden = hidden[:, :-1][batch["labels"][:, 1:] != IGNORED]
        logits = self._model.lm_head
        best = [token for part in hidden.split(LOGITS_AT_ONCE) for token in logits(part).argmax(-1).tolist()]
        return Prefill(cache, best, lambda index: logits(hidden[index]), [axes[1] for axes in positions])

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        cache, hidden, (positions,) = self._forward([sentence], torch.tensor([sentence.input_ids]))
        return PrefilledSequence(cache, self._model.lm_head(hidden[0, -1]), int(positions[1, -1]) + 1)

    def _forward(
        self, sentences: Sequence[Sentence], ids: torch.Tensor
    ) -> tuple[Cache, torch.Tensor, list[np.ndarray]]:
        """The cache, the hidden states (B, L, width), and each sentence's positions (`QwenVLCollator.positions`)."""
        model, cache = self._model, growing_cache()
        positions = [self._collate.positions(sentence) for sentence in sentences]
        batch = self._collate.screens(sentences) | {
            "input_ids": ids,
            "position_ids": _padded(positions, ids.shape[1]),
            "screen_places": places(ids == SCREEN_TOKEN),
        }
        batch = send_to_device(batch, model.language_model.device)
        decoded = model.read(**batch | {"use_cache": True, CACHE: cache})
        return cache, decoded.last_hidden_state, positions

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """See `Decoder.step`. Time, row and column of a new token are all its position."""
        language_model, device = self._model.language_model, self._model.language_model.device
        decoded = language_model(
            inputs_embeds=language_model.get_input_embeddings()(ids.to(device)),
            attention_mask=mask[:, None].to(device),
            position_ids=positions.to(device).expand(3, -1, -1),
            use_cache=True,
            **{CACHE: cache},
        )
        return self._model.lm_head(decoded.last_hidden_state)


def _padded(positions: list[np.ndarray], longest: int) -> torch.Tensor:
    """int64 (3, sentences, longest): time, row and column, without the index in the sentence."""
    padded = [functional.pad(torch.from_numpy(one[1:]), (0, longest - one.shape[1])) for one in positions]
    return torch.stack(padded, dim=1)
