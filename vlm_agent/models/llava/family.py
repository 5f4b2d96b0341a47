"""The LLaVA family."""

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.errors import CheckpointError
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.decoding import CausalDecoder
from vlm_agent.models.family import ModelFamily, Processor, keys_of_tokenizer, source_of
from vlm_agent.models.fused import fuse
from vlm_agent.models.llava.model import LlavaCost, LlavaForConditionalGeneration, collate
from vlm_agent.models.pretrained import source_configuration
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.templates import ChatTemplate

IMAGE_TOKEN = "<image>"  # noqa: S105 (no password)

TURNS = ChatTemplate(start="USER: ", cue="\nASSISTANT:", next_turn="\nUSER: ")
"""The turns of LLaVA 1.5 (Vicuna). The tokenizer's end mark ends an answer. There is one end mark and no mark of a
turn, so a server that tokenises a whole conversation would join tokens that training separates."""


class LlavaDecoder(CausalDecoder):
    def __init__(self, model: LlavaForConditionalGeneration) -> None:
        super().__init__(model, model.language_model, model.lm_head)

    def collate(self, sentences: Sequence[Sentence]) -> dict[str, Any]:
        return collate(sentences)

    def forward(self, row: dict[str, Any], sentences: Sequence[Sentence], **options: Any) -> Any:
        columns = ("screens", "input_ids", "position_ids", "screen_places")
        return self._model.read(**{name: row[name] for name in columns}, **options)


class LlavaFamily(ModelFamily):
    """Screens are stretched to the tower's square, so that fractions of the screen stay valid; LLaVA's own code pads or
    crops pictures."""

    model = LlavaForConditionalGeneration
    special_tokens = (IMAGE_TOKEN,)

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        """Raises CheckpointError for limits of pixels, and for other features than those of one layer of CLIP."""
        if recipe.min_pixels is not None or recipe.max_pixels is not None:
            raise CheckpointError("min_pixels and max_pixels: LLaVA sees every screen at one size; remove them")
        config = source_configuration(source_of(recipe), **keys_of_tokenizer(recipe, tokenizer, IMAGE_TOKEN))
        if hasattr(config, "mm_vision_tower"):
            raise CheckpointError(
                "model.vlm is a checkpoint of LLaVA's own code; take one of transformers: llava-hf/llava-1.5-7b-hf"
            )
        read = config.vision_feature_layer, config.vision_feature_select_strategy, config.vision_config.model_type
        if not isinstance(read[0], int) or read[1:] != ("default", "clip_vision_model"):
            raise CheckpointError(
                f"model.vlm: this LLaVA reads {read[1]!r} features of layers {read[0]} of a {read[2]!r}; supported are "
                "'default' features of one layer of a 'clip_vision_model', as in llava-hf/llava-1.5-7b-hf"
            )
        return config

    def prepare(self, model: Any) -> PreTrainedModel:
        choose_attention(model.vision, model.language_model)
        fuse(model)
        return model

    def processor(self, config: PretrainedConfig) -> Processor:
        side, patch = config.vision_config.image_size, config.vision_config.patch_size
        return Processor(FixedScreens((side, side), (side // patch) ** 2, bicubic=True), TURNS, collate)

    def decoder(self, model: Any) -> LlavaDecoder:
        return LlavaDecoder(model)

    def cost(self, config: PretrainedConfig) -> LlavaCost:
        return LlavaCost(config)


LLAVA = LlavaFamily()
