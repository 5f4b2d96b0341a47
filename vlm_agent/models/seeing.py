"""The forward pass over packed rows that transformers' models with vision, a language model and a head share."""

from typing import Self

import torch
from transformers import PreTrainedModel

from vlm_agent.models.attention import to_device
from vlm_agent.models.loss import ReadsRows
from vlm_agent.models.weights.precision import seen_dtype
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.packing import filled


class SeesScreens(ReadsRows):
    """A mixin before a transformers class with `model.language_model` and `lm_head`.

    A subclass has `parts`, `vision`, `image_mean` and `image_std`, and `read`.
    """

    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]

    @property
    def vision(self) -> PreTrainedModel:
        raise NotImplementedError

    @property
    def language_model(self) -> PreTrainedModel:
        return self.model.language_model

    def train(self, mode: bool = True) -> Self:
        """A frozen tower stays in evaluation mode."""
        super().train(mode)
        if not self._sees_with_graph():
            self.vision.eval()
        return self

    def _sees_with_graph(self) -> bool:
        return any(parameter.requires_grad for parameter in self.vision.parameters())

    def embed(self, input_ids: torch.Tensor, seen: torch.Tensor, screen_places: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, L, width) of `input_ids` int64 (B, L) with the visual tokens `seen` (n, width) at
        `screen_places` int64 (n,) of B * L. Raises ValueError when they do not match in number."""
        if len(screen_places) != len(seen):
            raise ValueError(
                f"the sequence has places for {len(screen_places)} visual tokens, the screens have {len(seen)}"
            )
        ids = input_ids.masked_fill(input_ids == SCREEN_TOKEN, self.config.image_token_id)
        return filled(self.model.language_model.get_input_embeddings()(ids), screen_places, seen)

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 (N, 3, height, width) in the dtype of the vision tower."""
        mean, std = (to_device(values, pixels.device).view(3, 1, 1) for values in (self.image_mean, self.image_std))
        return (pixels / 255).sub_(mean).div_(std).to(seen_dtype(next(self.vision.parameters())))
