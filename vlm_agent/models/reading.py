"""How each family of models reads: its screens, its form of conversation, and rows of sentences as its forward takes
them. Everything here is small and holds no weights, so that processes which prepare screens can have it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.models.llama_vit import LlamaViTConfig
from vlm_agent.models.qwen_vl import QWEN_VL, QwenRows
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.frames import CHAT_TURNS, PLAIN, QWEN_2023, Frame
from vlm_agent.sentences.packing import lay_end_to_end
from vlm_agent.sentences.screens import FittedScreens, FixedScreens, ScreenRule
from vlm_agent.sentences.trajectory import TrajectorySentences

MIN_PIXELS, MAX_PIXELS = 56 * 56, 1280 * 28 * 28
"""What a Qwen-VL sees unless a recipe says otherwise; its authors' own range, at most 1,280 tokens a screen."""


@dataclass(frozen=True)
class Reading:
    """`rows` makes a batch for the model of sentences laid end to end."""

    screens: ScreenRule
    frame: Frame
    rows: Callable[[list[Sentence]], dict]

    def sentences(self, tokenizer: PreTrainedTokenizerBase, language: ActionLanguage) -> TrajectorySentences:
        return TrajectorySentences(tokenizer, language, self.screens, self.frame)


def reading_of(config: PretrainedConfig) -> Reading:
    """How the model of this configuration reads. Raises ValueError for one of no known family."""
    if isinstance(config, LlamaViTConfig):
        is_qwen = config.projector == "resampler"
        screens = FixedScreens(config.screen_size, config.tokens_per_screen, bicubic=is_qwen)
        return Reading(screens, QWEN_2023 if is_qwen else PLAIN, llama_vit_rows)
    if config.model_type in QWEN_VL:
        vision = config.vision_config
        multiple = vision.patch_size * vision.spatial_merge_size
        limits = (getattr(config, "min_pixels", MIN_PIXELS), getattr(config, "max_pixels", MAX_PIXELS))
        return Reading(FittedScreens(*limits, multiple), CHAT_TURNS, QwenRows(config))
    raise ValueError(f"models of type {config.model_type!r} are not known; there are llama_vit, {', '.join(QWEN_VL)}")


def llama_vit_rows(sentences: list[Sentence]) -> dict:
    """A batch for `LlamaViT.forward`."""
    row = lay_end_to_end(sentences)
    row["screens"] = torch.from_numpy(np.stack([screen for sentence in sentences for screen in sentence.screens]))
    if sentences[0].element_labels:
        labels = [labels for sentence in sentences for labels in sentence.element_labels]
        row["element_labels"] = torch.from_numpy(np.stack(labels))
    return row
