"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL, as transformers has them, reading rows of packed sentences.

The weights, their names and `generate` stay transformers' own, so an adapter trained here fits the published checkpoint
anywhere else. What is added is a forward pass for training: screens as uint8 patches, turned into pixels on the device;
a frozen vision tower without a graph; logits and loss only where there is a label.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
import transformers
from torch import nn

from vlm_agent.models.attention import packed_options
from vlm_agent.models.supervised import SupervisedOutput, supervise
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import lay_end_to_end

IMAGE_TOKEN = "<|image_pad|>"  # noqa: S105 (no password)
"""What stands for a visual token in these models' vocabularies."""

IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)
"""Of CLIP, which Qwen2-VL and Qwen2.5-VL take."""

IMAGE_MEAN_3 = IMAGE_STD_3 = (0.5, 0.5, 0.5)
"""Of Qwen3-VL."""


def _or_row(forward: Callable) -> Callable:
    """transformers' forward, that also takes a row as `QwenRows` makes it; of the same signature, in which `generate`
    looks for the names that it may pass."""

    @functools.wraps(forward)
    def forward_or_row(self, *args, patches: torch.Tensor | None = None, **batch):
        return forward(self, *args, **batch) if patches is None else self.read_row(patches, **batch)

    return forward_or_row


class _ReadsRows(nn.Module):
    """For classes derived from one of transformers' models: `model.visual`, `model.language_model`, `lm_head`.

    `parts`: what a recipe freezes, adapts or trains in full, and where each lives in the model.
    """

    parts = {  # noqa: RUF012 (a constant)
        "vision": "model.visual",
        "projector": "model.visual.merger",
        "embeddings": "model.language_model.embed_tokens",
        "language_model": "model.language_model.layers",
        "norm": "model.language_model.norm",
        "head": "lm_head",
    }
    image_mean, image_std = IMAGE_MEAN, IMAGE_STD
    # Trainer then passes `num_items_in_batch`, so that accumulation weighs every supervised token alike.
    accepts_loss_kwargs = True

    @property
    def vision(self):
        return self.model.visual

    @property
    def language_model(self):
        return self.model.language_model

    def train(self, mode: bool = True):
        """A frozen tower stays as in use."""
        super().train(mode)
        if not self._sees_with_graph():
            self.vision.eval()
        return self

    def _sees_with_graph(self) -> bool:
        return any(parameter.requires_grad for parameter in self.vision.parameters())

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.forward = _or_row(super().forward)

    @classmethod
    def is_custom_code(cls) -> bool:
        """Published checkpoints name some weights as older versions did; transformers renames them when it loads, and
        back when it saves, but not for a class that it takes for somebody else's: there they would stay random."""
        return False

    def read_row(
        self,
        patches: torch.Tensor,
        grids: torch.Tensor,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        labels: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> SupervisedOutput:
        """The loss as `supervise` defines it; what is read as in `read`."""
        packed = packed_options(self.language_model, cu_seqlens)
        # Told, because the language model's own configuration would make a cache, which copies all keys and values.
        hidden = self.read(patches, grids, input_ids, position_ids, use_cache=False, **packed).last_hidden_state
        return supervise(hidden, labels, self.lm_head, num_items_in_batch)

    def read(
        self,
        patches: torch.Tensor,
        grids: torch.Tensor,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        **decoding,
    ):
        """transformers' output without a head: `last_hidden_state` (B, L, width), and the cache of `decoding`.

        `patches` uint8 (P, 3, patch, patch), `grids` int64 (screens, 3); `input_ids` int64 (B, L) with `SCREEN_TOKEN`s;
        `position_ids` int64 (4, B, L): the place in the sentence, and time, row and column.
        """
        ids = input_ids.masked_fill(input_ids == SCREEN_TOKEN, self.config.image_token_id)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._sees_with_graph()):
            seen = self.model.get_image_features(self._pixels(patches), grids, return_dict=True)
        return self.model(input_ids=ids, mm_encoder_outputs={"image": seen}, position_ids=position_ids, **decoding)

    def _pixels(self, patches: torch.Tensor) -> torch.Tensor:
        """(P, 3 * frames * patch * patch) normalised, as the vision tower takes them; a still screen in every frame."""
        mean, std = (
            torch.tensor(values, device=patches.device).view(3, 1, 1, 1) for values in (self.image_mean, self.image_std)
        )
        frames = self.config.vision_config.temporal_patch_size
        pixels = ((patches.unsqueeze(2) / 255 - mean) / std).expand(-1, -1, frames, -1, -1)
        return pixels.flatten(1).to(self.vision.dtype)


class Qwen2VLForConditionalGeneration(_ReadsRows, transformers.Qwen2VLForConditionalGeneration):
    """Named as transformers' class, because the name is saved with the weights."""


class Qwen2_5_VLForConditionalGeneration(_ReadsRows, transformers.Qwen2_5_VLForConditionalGeneration):  # noqa: N801
    """Named as transformers' class, because the name is saved with the weights."""


class Qwen3VLForConditionalGeneration(_ReadsRows, transformers.Qwen3VLForConditionalGeneration):
    """Named as transformers' class, because the name is saved with the weights."""

    image_mean, image_std = IMAGE_MEAN_3, IMAGE_STD_3


QWEN_VL = {
    "qwen2_vl": Qwen2VLForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
}
"""The class of each `model_type` that a checkpoint's configuration can name."""


class QwenRows:
    """Makes rows for these models; `patch` pixels a patch, `merge` × `merge` patches a visual token.

    Known apart from the model, so that the processes that prepare screens need not hold it.
    """

    def __init__(self, config: transformers.PretrainedConfig):
        self.patch, self.merge = config.vision_config.patch_size, config.vision_config.spatial_merge_size

    def __call__(self, sentences: list[Sentence]) -> dict:
        """What `read_row` takes, of sentences laid end to end."""
        positions = np.concatenate([self.positions(sentence) for sentence in sentences], axis=1)
        row = lay_end_to_end(sentences) | self.screens(sentences)
        return row | {"position_ids": torch.from_numpy(positions)[:, None]}

    def screens(self, sentences: Sequence[Sentence]) -> dict[str, torch.Tensor]:
        """`patches` and `grids` of all their screens."""
        screens = [screen for sentence in sentences for screen in sentence.screens]
        return {
            "patches": torch.from_numpy(np.concatenate([self._patches(screen) for screen in screens])),
            "grids": torch.tensor([self._grid(screen) for screen in screens]),
        }

    def _tokens(self, screen: np.ndarray) -> tuple[int, int]:
        """(rows, columns) of visual tokens."""
        return tuple(side // (self.patch * self.merge) for side in screen.shape[1:])

    def _grid(self, screen: np.ndarray) -> tuple[int, int, int]:
        """(1, rows, columns) of patches."""
        return 1, *(side * self.merge for side in self._tokens(screen))

    def _patches(self, screen: np.ndarray) -> np.ndarray:
        """uint8 (patches, 3, patch, patch); the patches of a visual token are adjacent, tokens in reading order."""
        rows, columns = self._tokens(screen)
        merge, patch = self.merge, self.patch
        tiles = screen.reshape(3, rows, merge, patch, columns, merge, patch)
        return tiles.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, patch, patch)

    def positions(self, sentence: Sentence) -> np.ndarray:
        """int64 (4, L): the place in the sentence; and time, row and column, where words have all three alike.

        A screen's tokens share one time and have their own rows and columns, counted from there; what follows goes on
        behind the larger of its sides (Qwen2-VL, section 2.1; transformers, `get_rope_index`).
        """
        ids = np.asarray(sentence.input_ids)
        place = np.empty((4, len(ids)), np.int64)
        place[0] = np.arange(len(ids))
        at = now = 0
        grids = [self._tokens(screen) for screen in sentence.screens]
        for (rows, columns), begin in zip(grids, _screen_starts(ids, grids), strict=True):
            place[1:, at:begin] = now + np.arange(begin - at)
            now += begin - at
            end = begin + rows * columns
            place[1, begin:end] = now
            place[2, begin:end] = now + np.repeat(np.arange(rows), columns)
            place[3, begin:end] = now + np.tile(np.arange(columns), rows)
            at, now = end, now + max(rows, columns)
        place[1:, at:] = now + np.arange(len(ids) - at)
        return place


def _screen_starts(ids: np.ndarray, grids: list[tuple[int, int]]) -> list[int]:
    """Where each screen begins. Screens never touch: a mark or a cue stands between any two."""
    is_screen = np.concatenate([[False], ids == SCREEN_TOKEN])
    starts = np.flatnonzero(is_screen[1:] & ~is_screen[:-1])
    if len(starts) != len(grids) or int(is_screen.sum()) != sum(rows * columns for rows, columns in grids):
        raise ValueError(f"the sentence has {len(starts)} places for screens, and {len(grids)} screens")
    return starts.tolist()
