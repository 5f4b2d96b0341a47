"""The Qwen-VL family: Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from vlm_agent.errors import CheckpointError
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.decoding import CausalDecoder
from vlm_agent.models.family import ModelFamily, Processor, keys_of_tokenizer, source_of, write_tokenizer_of_servers
from vlm_agent.models.fused import fuse
from vlm_agent.models.pretrained import source_configuration
from vlm_agent.models.qwen_vl.cost import QwenVLCost
from vlm_agent.models.qwen_vl.model import (
    CHAT_TURNS,
    IMAGE_TOKEN,
    SPECIAL_TOKENS,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
    QwenVLCollator,
    ReadsScreens,
)
from vlm_agent.models.qwen_vl.vision_kernels import use_fast_kernels
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import FittedScreens

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
"""Writes a conversation in the words of training as training wrote it; published tokenizers have no start mark."""


class QwenVLDecoder(CausalDecoder):
    def __init__(self, model: ReadsScreens) -> None:
        super().__init__(model, model.language_model, model.lm_head)
        self._collate = QwenVLCollator(model.config)
        self.prepare_screen = self._collate.prepare_screen

    def collate(self, sentences: Sequence[Sentence]) -> dict[str, Any]:
        return self._collate([*sentences])

    def forward(self, row: dict[str, Any], sentences: Sequence[Sentence], **options: Any) -> Any:
        columns = ("patches", "grids", "input_ids", "position_ids", "tower", "screen_places")
        return self._model.read(**{name: row[name] for name in columns}, **options)

    def positions(self, row: dict[str, Any]) -> torch.Tensor:
        """The time axis."""
        return row["position_ids"][1, 0]

    def axes(self, positions: torch.Tensor) -> torch.Tensor:
        """Time, row and column of a new token are all its position."""
        return positions.expand(3, -1, -1)


MIN_PIXELS, MAX_PIXELS = 56 * 56, 1280 * 28 * 28
"""The pixels of a screen, unless a recipe or a configuration says otherwise: the authors' own range, at most 1,280
tokens a screen."""


@dataclass(frozen=True)
class QwenVLFamily(ModelFamily):
    model: type[PreTrainedModel]
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        """The limits of a screen's pixels are part of the configuration and saved with it, so that nothing that loads
        the model can use others."""
        config = source_configuration(source_of(recipe), **keys_of_tokenizer(recipe, tokenizer, IMAGE_TOKEN))
        least, most = _pixel_limits(config)
        config.min_pixels = least if recipe.min_pixels is None else recipe.min_pixels
        config.max_pixels = most if recipe.max_pixels is None else recipe.max_pixels
        if config.min_pixels > config.max_pixels:
            raise CheckpointError(
                f"model.min_pixels {config.min_pixels:,} is greater than max_pixels {config.max_pixels:,}; set both"
            )
        return config

    def prepare(self, model: Any) -> PreTrainedModel:
        vision = model.vision
        choose_attention(vision, model.language_model)
        use_fast_kernels(vision)
        fuse(model)
        return model

    def save_for_serving(self, model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        """The tokenizer with the chat template of `CHAT_TURNS`, greedy decoding that ends with the template's end mark,
        and preprocessor_config.json, the image processor: this model's own limits of pixels, mean and deviation.

        Published checkpoints have such files too. Theirs have other limits of pixels, and a repetition penalty, which
        servers apply unless a request overrides it: a fine-tuned model would see and answer otherwise than in training.
        """
        if model.config.model_type not in PROCESSOR_MAPPING_NAMES:
            return
        content = json.dumps(_image_processor(model), indent=2)
        (folder / "preprocessor_config.json").write_text(f"{content}\n", encoding="utf-8")
        ends = dict.fromkeys([tokenizer.convert_tokens_to_ids(CHAT_TURNS.end), tokenizer.eos_token_id])
        write_tokenizer_of_servers(tokenizer, CHAT_TEMPLATE, folder, eos_token_id=[*ends])

    def processor(self, config: PretrainedConfig) -> Processor:
        vision = config.vision_config
        screens = FittedScreens(*_pixel_limits(config), vision.patch_size * vision.spatial_merge_size)
        return Processor(screens, CHAT_TURNS, QwenVLCollator(config))

    def decoder(self, model: Any) -> QwenVLDecoder:
        return QwenVLDecoder(model)

    def cost(self, config: PretrainedConfig) -> QwenVLCost:
        return QwenVLCost(config)


def _pixel_limits(config: PretrainedConfig) -> tuple[int, int]:
    least, most = getattr(config, "min_pixels", None), getattr(config, "max_pixels", None)
    return MIN_PIXELS if least is None else least, MAX_PIXELS if most is None else most


def _image_processor(model: ReadsScreens) -> dict:
    (least, most), vision = _pixel_limits(model.config), model.config.vision_config
    return {
        "processor_class": PROCESSOR_MAPPING_NAMES[model.config.model_type],
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": least, "longest_edge": most},
        "min_pixels": least,  # of transformers before version 5
        "max_pixels": most,
        "patch_size": vision.patch_size,
        "merge_size": vision.spatial_merge_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "image_mean": list(model.image_mean),
        "image_std": list(model.image_std),
        **dict.fromkeys(("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"), True),
        "rescale_factor": 1 / 255,
        "resample": 3,  # bicubic
    }


QWEN2_VL = QwenVLFamily(Qwen2VLForConditionalGeneration)
QWEN2_5_VL = QwenVLFamily(Qwen2_5_VLForConditionalGeneration)
QWEN3_VL = QwenVLFamily(Qwen3VLForConditionalGeneration)
