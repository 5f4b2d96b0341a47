"""Causal language models of transformers, with a forward pass over packed rows.

Weights, their names and `generate` stay transformers' own, so a trained model is a checkpoint for any server.
"""

from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from vlm_agent.models.attention import packed_options
from vlm_agent.models.loss import ReadsRows, SupervisedOutput, supervise


class ReadsText(ReadsRows):
    """A mixin for transformers' language models that are built as Llama is.

    `parts`: the module path of each part that a recipe freezes, adapts or trains in full.
    """

    parts = {  # noqa: RUF012 (a constant)
        "embeddings": "model.embed_tokens",
        "language_model": "model.layers",
        "norm": "model.norm",
        "head": "lm_head",
    }
    # Attributes of the transformers class.
    config: Any
    model: Any
    lm_head: nn.Linear
    row_argument = "cu_seqlens"

    def read_row(
        self,
        cu_seqlens: np.ndarray,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
        loss_weights: torch.Tensor | None = None,
        target_places: torch.Tensor | None = None,
    ) -> SupervisedOutput:
        """The loss of `supervise` for one row of `sentences.packing.pack`."""
        packed = packed_options(self.model, cu_seqlens, input_ids.device)
        # The default of the configuration is a cache, which would copy all keys and values.
        decoded = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False, **packed)
        hidden = decoded.last_hidden_state
        return supervise(hidden, labels, self.lm_head, num_items_in_batch, loss_weights, places=target_places)


class LlamaForCausalLM(ReadsText, transformers.LlamaForCausalLM):
    """Has the name of transformers' class, because the name is saved with the weights."""


class MistralForCausalLM(ReadsText, transformers.MistralForCausalLM):
    """Has the name of transformers' class, because the name is saved with the weights."""


class Qwen2ForCausalLM(ReadsText, transformers.Qwen2ForCausalLM):
    """Has the name of transformers' class, because the name is saved with the weights."""


class Qwen3ForCausalLM(ReadsText, transformers.Qwen3ForCausalLM):
    """Has the name of transformers' class, because the name is saved with the weights."""
