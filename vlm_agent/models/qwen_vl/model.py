"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL of transformers, with a forward pass over packed rows, and what makes these rows:
the chat template, patches and positions.

The weights, their names and `generate` stay transformers' own, so an adapter trained here fits the published checkpoint
anywhere else. This module adds a forward pass for training: screens as uint8 patches, normalised on the device;
a frozen vision tower without a graph; logits and loss only where there is a label.
"""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from vlm_agent.models.qwen_vl.vision_kernels import add_deepstack_by_index, tower_inputs, tower_options
from vlm_agent.models.seeing import SeesScreens
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pack, places
from vlm_agent.sentences.templates import ChatTemplate

IMAGE_TOKEN = "<|image_pad|>"  # noqa: S105 (no password)
"""The visual token of these models' vocabularies."""

_SYSTEM = "You operate a phone by its screen, one action at a time."

CHAT_TURNS = ChatTemplate(
    start=f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n",
    before_screen="<|vision_start|>",
    cue="<|vision_end|><|im_end|>\n<|im_start|>assistant\n",
    next_turn="\n<|im_start|>user\n",
    end="<|im_end|>",
    system=_SYSTEM,
)
"""The goal and every screen are turns of the user, every action is a turn of the assistant that ends with <|im_end|>:
the same text as these models' own chat templates write."""

SPECIAL_TOKENS = (*dict.fromkeys(re.findall(r"<\|\w+\|>", "".join(map(str, astuple(CHAT_TURNS))))), IMAGE_TOKEN)
"""Tokens of the template that a word tokenizer must contain."""


@dataclass(frozen=True)
class Patches:
    """A screen cut into patches, uint8 (patches, 3, patch, patch). `shape`: (3, height, width) of the screen."""

    patches: np.ndarray
    shape: tuple[int, ...]


class QwenVLCollator:
    """Collates packed rows; `patch` pixels a side of a patch, `merge` × `merge` patches a visual token."""

    def __init__(self, config: PretrainedConfig) -> None:
        self.vision = config.vision_config
        self.patch, self.merge = config.vision_config.patch_size, config.vision_config.spatial_merge_size

    def __call__(self, sentences: list[Sentence]) -> dict:
        """The arguments of `ReadsScreens.read_row` for packed sentences."""
        positions = np.concatenate([self.positions(sentence) for sentence in sentences], axis=1)
        row = pack(sentences) | self.screens(sentences)
        return row | {"position_ids": torch.from_numpy(positions)[:, None]}

    def screens(self, sentences: Sequence[Sentence]) -> dict:
        """`patches`, `grids` ((1, rows, columns) of patches) and `tower` (`tower_inputs`) of all screens."""
        screens = [screen for sentence in sentences for screen in sentence.screens]
        grids = torch.tensor([(1, *(side * self.merge for side in self._tokens(screen))) for screen in screens])
        return {
            "patches": torch.from_numpy(np.concatenate([self._patches(screen) for screen in screens])),
            "grids": grids,
            "tower": tower_inputs(grids, self.vision),
        }

    def prepare_screen(self, screen: np.ndarray) -> Patches:
        """The part of collating a screen that can be done before its row is known."""
        return Patches(self._patches(screen), screen.shape)

    def _tokens(self, screen: np.ndarray | Patches) -> tuple[int, int]:
        """(rows, columns) of visual tokens."""
        return tuple(side // (self.patch * self.merge) for side in screen.shape[1:])

    def _patches(self, screen: np.ndarray | Patches) -> np.ndarray:
        """uint8 (patches, 3, patch, patch); the patches of a visual token are adjacent, tokens in reading order."""
        if isinstance(screen, Patches):
            return screen.patches
        rows, columns = self._tokens(screen)
        merge, patch = self.merge, self.patch
        tiles = screen.reshape(3, rows, merge, patch, columns, merge, patch)
        return tiles.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, patch, patch)

    def positions(self, sentence: Sentence) -> np.ndarray:
        """int64 (4, L): the index in the sentence, then time, row and column, which are equal for text.

        The tokens of a screen share one time and have their own rows and columns, counted from that time; the next
        token's position is larger than all of them (Qwen2-VL, section 2.1; transformers, `get_rope_index`). A branch
        counts from the end of its prefix.
        """
        ids = np.asarray(sentence.input_ids)
        place = np.empty((4, len(ids)), np.int64)
        place[0] = sentence.positions()
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
        for begin, prefix in sentence.branches:
            place[1:, begin:] = place[1:, prefix, None] + np.arange(len(ids) - begin)
        return place


def _screen_starts(ids: np.ndarray, grids: list[tuple[int, int]]) -> list[int]:
    """The index of each screen's first token. Two screens are never adjacent: marks and a cue separate them."""
    is_screen = np.concatenate([[False], ids == SCREEN_TOKEN])
    starts = np.flatnonzero(is_screen[1:] & ~is_screen[:-1])
    if len(starts) != len(grids) or int(is_screen.sum()) != sum(rows * columns for rows, columns in grids):
        raise ValueError(f"the sentence has {len(starts)} places for screens, and {len(grids)} screens")
    return starts.tolist()


IMAGE_MEAN, IMAGE_STD = tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD)
"""Qwen2-VL and Qwen2.5-VL take the values of CLIP."""


class ReadsScreens(SeesScreens):
    """A mixin for transformers' Qwen-VL models.

    `parts`: the module path of each part that a recipe freezes, adapts or trains in full.
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
    row_argument = "patches"

    @property
    def vision(self) -> PreTrainedModel:
        return self.model.visual

    def read(
        self,
        patches: torch.Tensor,
        grids: torch.Tensor,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        tower: dict | None = None,
        screen_places: torch.Tensor | None = None,
        **decoding: Any,
    ) -> Any:
        """transformers' output without the head: `last_hidden_state` (B, L, width), and the cache of `decoding`.

        `patches` uint8 (P, 3, patch, patch), `grids` int64 (screens, 3); `input_ids` int64 (B, L) with `SCREEN_TOKEN`s;
        `position_ids` int64 (3 or 4, B, L): time, row and column (M-RoPE), and the index in the sentence before them.
        `tower` (`tower_inputs`), `screen_places` int64 (visual tokens,) of B * L: None: found here, where a GPU must be
        waited for. Raises ValueError when screens and positions do not match in number.

        The forward pass of transformers' model around tower and language model, which reads back what it checks. It
        would also search the index in the sentence for several sentences.
        """
        seen = self.see(patches, grids, tower)
        at = places(input_ids == SCREEN_TOKEN) if screen_places is None else screen_places
        embeddings = self.embed(input_ids, seen.pooler_output, at)
        deepstack = getattr(seen, "deepstack_features", None)
        if deepstack is not None:
            decoding |= {"visual_pos_masks": at, "deepstack_visual_embeds": deepstack}
        return self.language_model(inputs_embeds=embeddings, position_ids=position_ids[-3:], **decoding)

    def see(self, patches: torch.Tensor, grids: torch.Tensor, tower: dict | None) -> Any:
        """transformers' output of the vision tower: `pooler_output` (visual tokens, width), for Qwen3-VL also
        `deepstack_features`, of the same shape each. A frozen tower builds no graph."""
        options = {} if tower is None else tower_options(tower, patches.device)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._sees_with_graph()):
            return self.vision(self._pixels(patches), grid_thw=grids, return_dict=True, **options)

    def _pixels(self, patches: torch.Tensor) -> torch.Tensor:
        """Normalised patches (P, 3 * frames * patch * patch) for the vision tower; every frame is the same screen."""
        pixels = self.normalised(patches)
        frames = self.config.vision_config.temporal_patch_size  # copied last, in the dtype of the tower
        return pixels.unsqueeze(2).expand(-1, -1, frames, -1, -1).flatten(1)


class Qwen2VLForConditionalGeneration(ReadsScreens, transformers.Qwen2VLForConditionalGeneration):
    """Has the name of transformers' class, because the name is saved with the weights."""


class Qwen2_5_VLForConditionalGeneration(ReadsScreens, transformers.Qwen2_5_VLForConditionalGeneration):  # noqa: N801
    """Has the name of transformers' class, because the name is saved with the weights."""


class Qwen3VLForConditionalGeneration(ReadsScreens, transformers.Qwen3VLForConditionalGeneration):
    """Has the name of transformers' class, because the name is saved with the weights."""

    image_mean = image_std = (0.5, 0.5, 0.5)

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        add_deepstack_by_index(self.language_model)
