"""The chat template, patches and positions of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from transformers import PretrainedConfig

from vlm_agent.models.qwen_vl.vision_kernels import tower_inputs
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pack
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
        """`patches`, `grids` and `tower` (`tower_inputs`) of all screens."""
        screens = [screen for sentence in sentences for screen in sentence.screens]
        grids = torch.tensor([self._grid(screen) for screen in screens])
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

    def _grid(self, screen: np.ndarray | Patches) -> tuple[int, int, int]:
        """(1, rows, columns) of patches."""
        return 1, *(side * self.merge for side in self._tokens(screen))

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
        token's position is larger than all of them (Qwen2-VL, section 2.1; transformers, `get_rope_index`).
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
    """The index of each screen's first token. Two screens are never adjacent: marks and a cue separate them."""
    is_screen = np.concatenate([[False], ids == SCREEN_TOKEN])
    starts = np.flatnonzero(is_screen[1:] & ~is_screen[:-1])
    if len(starts) != len(grids) or int(is_screen.sum()) != sum(rows * columns for rows, columns in grids):
        raise ValueError(f"the sentence has {len(starts)} places for screens, and {len(grids)} screens")
    return starts.tolist()
