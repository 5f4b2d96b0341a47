"""LLaVA of transformers with a forward pass over packed rows (Liu et al., "Visual Instruction Tuning", 2304.08485).

The weights, their names and `generate` stay transformers' own. A screen of 336 by 336 pixels has 576 visual tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision, attention_flops, linear_flops
from vlm_agent.models.seeing import SeesScreens
from vlm_agent.recipe.model import TrainedParts, Training
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pack, places


class LlavaForConditionalGeneration(SeesScreens, transformers.LlavaForConditionalGeneration):
    """Has the name of transformers' class, because the name is saved with the weights.

    `parts`: the module path of each part that a recipe freezes, adapts or trains in full.
    """

    parts = {  # noqa: RUF012 (a constant)
        "vision": "model.vision_tower",
        "projector": "model.multi_modal_projector",
        "embeddings": "model.language_model.embed_tokens",
        "language_model": "model.language_model.layers",
        "norm": "model.language_model.norm",
        "head": "lm_head",
    }
    image_mean, image_std = tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD)
    row_argument = "screens"

    @property
    def vision(self) -> PreTrainedModel:
        return self.model.vision_tower

    def read(
        self,
        screens: torch.Tensor,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        screen_places: torch.Tensor | None = None,
        **decoding: Any,
    ) -> Any:
        """transformers' output without the head: `last_hidden_state` (B, L, width), and the cache of `decoding`.

        `screens` uint8 (N, 3, height, width); `input_ids` int64 (B, L) with `SCREEN_TOKEN`s; `position_ids` int64
        (B, L); `screen_places` int64 (visual tokens,) of B * L, None: found here, where a GPU must be waited for.
        Raises ValueError when screens and positions do not match in number.
        """
        seen = self.model.get_image_features(self.normalised(screens), return_dict=True).pooler_output
        at = places(input_ids == SCREEN_TOKEN) if screen_places is None else screen_places
        embeddings = self.embed(input_ids, torch.cat(seen), at)
        return self.language_model(inputs_embeds=embeddings, position_ids=position_ids, **decoding)


def collate(sentences: Sequence[Sentence]) -> dict:
    """A row for `LlavaForConditionalGeneration.read_row`: `pack`, and `screens` uint8 (N, 3, height, width)."""
    screens = np.stack([screen for sentence in sentences for screen in sentence.screens])
    return pack(sentences) | {"screens": torch.from_numpy(screens)}


class LlavaCost(DecoderOnlyCost):
    """All layers of the tower run; those after `vision_feature_layer` have no gradient."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config.text_config)
        self.vision, self.hidden = config.vision_config, config.text_config.hidden_size
        self.used = config.vision_feature_layer % (self.vision.num_hidden_layers + 1)

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        width, patches = self.vision.hidden_size, self._patches(size)
        kind, trained, rows = train.vision, train.vision != "frozen", patches + 1  # and the class token
        maps = [(width, width)] * 4 + [(width, self.vision.intermediate_size), (self.vision.intermediate_size, width)]
        stem_kind: Training = "full" if kind == "full" else "frozen"
        stem = linear_flops([(3 * self.vision.patch_size**2, width)], patches, stem_kind, 0, False)
        # LoRA adapts the position table, too: the input of every layer of a trained tower needs a gradient.
        layer = linear_flops(maps, rows, kind, rank, trained) + attention_flops(width, rows**2, trained)
        layers = layer * self.used
        unused = Flops(layer.forward * (self.vision.num_hidden_layers - self.used))
        first_map, second_map = (width, self.hidden), (self.hidden, self.hidden)
        projector = linear_flops([first_map], patches, train.projector, rank, trained)
        projector += linear_flops([second_map], patches, train.projector, rank, trained or train.projector != "frozen")
        again = Flops(recomputed=layers.forward if checkpointing and trained else 0)
        return stem + layers + unused + projector + again

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        width, mlp, rows = self.vision.hidden_size, self.vision.intermediate_size, self._patches(size) + 1
        layers, bytes_ = self.vision.num_hidden_layers, precision.bytes
        kept = rows * bytes_ * width * (layers + 1)  # transformers keeps the result of every layer
        if train.vision == "frozen":
            return kept + rows * bytes_ * max(4 * width, 2 * mlp)
        one = rows * (8 * width + bytes_ * (7 * width + 3 * mlp))
        return kept + (1 if checkpointing else layers) * one

    def _patches(self, size: tuple[int, int]) -> int:
        return (size[0] // self.vision.patch_size) * (size[1] // self.vision.patch_size)
