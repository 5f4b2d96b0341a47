"""All that greedy decoding has to know about Qwen2-VL, Qwen2.5-VL and Qwen3-VL; beside `llama_vit_reader.py`."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import Cache, PreTrainedModel

from vlm_agent.agents.greedy import LOGITS_AT_ONCE, Begun, Prefill
from vlm_agent.agents.growing_cache import growing_cache
from vlm_agent.models.qwen_vl import QwenRows
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.packing import lay_side_by_side


class QwenVLReader:
    """Reads for one model, whose attention must take a mask of its own ("sdpa" does, flash-attn does not)."""

    def __init__(self, model: PreTrainedModel):
        self._model, self._rows = model, QwenRows(model.config)

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences, padded on the right, where causal attention never looks."""
        sides = lay_side_by_side(sentences)
        cache, hidden, positions = self._read(sentences, sides["input_ids"])
        hidden = hidden[:, :-1][sides["labels"][:, 1:] != IGNORED]
        logits = self._model.lm_head
        best = [token for part in hidden.split(LOGITS_AT_ONCE) for token in logits(part).argmax(-1).tolist()]
        return Prefill(cache, best, lambda index: logits(hidden[index]), [place[1] for place in positions])

    def begin(self, sentence: Sentence) -> Begun:
        cache, hidden, (positions,) = self._read([sentence], torch.tensor([sentence.input_ids]))
        return Begun(cache, self._model.lm_head(hidden[0, -1]), int(positions[1, -1]) + 1)

    def _read(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor, list[np.ndarray]]:
        model, cache = self._model, growing_cache()
        positions = [self._rows.positions(sentence) for sentence in sentences]
        given = self._rows.screens(sentences) | {
            "input_ids": ids,
            "position_ids": _side_by_side(positions, ids.shape[1]),
        }
        given = {name: tensor.to(model.device) for name, tensor in given.items()}
        decoded = model.read(**given, past_key_values=cache, use_cache=True)
        return cache, decoded.last_hidden_state, positions

    def step(self, ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (B, S, vocabulary) behind the tokens `ids`, int64 (B, S), which the cache holds afterwards.

        `places`, int64 (B, S): the position at which each token stands, in time, row and column alike. `mask`, bool
        (B, S, cached + S): which of the cached tokens, and of these, each one sees.
        """
        device = self._model.device
        decoded = self._model.language_model(
            inputs_embeds=self._model.get_input_embeddings()(ids.to(device)),
            attention_mask=mask[:, None].to(device),
            position_ids=places.to(device).expand(3, -1, -1),
            past_key_values=cache,
            use_cache=True,
        )
        return self._model.lm_head(decoded.last_hidden_state)


def _side_by_side(positions: list[np.ndarray], longest: int) -> torch.Tensor:
    """int64 (3, sentences, longest): time, row and column, without the place in a packed row."""
    padded = [functional.pad(torch.from_numpy(one[1:]), (0, longest - one.shape[1])) for one in positions]
    return torch.stack(padded, dim=1)
