"""The family of text models: Llama, Mistral, Qwen2 and Qwen3."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import cast as cast_type

import torch
import transformers
from transformers import Cache, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision, Workload, decoder_shape
from vlm_agent.models.decoding import CACHE, CausalDecoder, growing_cache
from vlm_agent.models.family import ModelFamily, Processor
from vlm_agent.models.pretrained import configuration, language_model, source_configuration, whole_model
from vlm_agent.models.text.from_scratch import initialise, is_suitable
from vlm_agent.models.text.model import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
from vlm_agent.models.text.serving import save_for_serving
from vlm_agent.models.weights.precision import cast
from vlm_agent.recipe.model import Lora, ModelRecipe, Source, TrainedParts
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import NO_PIXELS
from vlm_agent.sentences.packing import pack
from vlm_agent.sentences.templates import HTML_TURNS


class TextDecoder(CausalDecoder):
    @property
    def transformer(self) -> Any:
        return self._model.model

    def forward(self, sentences: Sequence[Sentence], ids: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        cache = growing_cache()
        decoded = self.transformer(input_ids=ids.to(self._model.device), use_cache=True, **{CACHE: cache})
        return cache, decoded.last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(hidden)


class TextCost(DecoderOnlyCost):
    """The cost of the language model; screens are part of its tokens."""

    def __init__(self, config: PretrainedConfig) -> None:
        self.decoder = decoder_shape(config)

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return super().flops(load, _without_vision(train), rank, checkpointing)

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointing: bool
    ) -> int:
        return super().activation_bytes(load, _without_vision(train), lora, precision, checkpointing)

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return Flops()

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        return 0


def _without_vision(train: TrainedParts) -> TrainedParts:
    """A recipe with `base` may train parts that a text model does not have."""
    return train.model_copy(update={"vision": "frozen", "projector": "frozen"})


@dataclass(frozen=True)
class TextFamily(ModelFamily):
    """`starts_matching`: random weights with a word tokenizer start as `from_scratch` describes, where it can."""

    model: type[PreTrainedModel]
    starts_matching: bool = False

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        source = _source(recipe)
        if source.config is None:
            return source_configuration(source, "language_model")
        marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
        return configuration(source, "language_model", vocab_size=len(tokenizer), **marks)

    def build(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        source, config = _source(recipe), self.configure(recipe, tokenizer)
        if source.gguf_file is None:
            return self.prepare(whole_model(self.model, source, config, recipe.dtype, "language_model"))
        dtype = getattr(torch, recipe.dtype)
        loaded = language_model(source, len(tokenizer), dtype).to(dtype)
        model = self.model._from_config(loaded.config, dtype=dtype)
        model.load_state_dict(loaded.state_dict(), assign=True)
        model.tie_weights()
        return self.prepare(model)

    def initialise(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        if not self.starts_matching or not is_suitable(model.config):
            return model
        dtype = model.dtype
        # Its decompositions do not support bfloat16.
        initialise(cast_type("transformers.LlamaForCausalLM", cast(model, torch.float32)), tokenizer)
        return cast(model, dtype)

    def prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        choose_attention(None, model)
        return model

    def save_for_serving(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        save_for_serving(model, tokenizer, folder)

    def processor(self, config: PretrainedConfig) -> Processor:
        return Processor(NO_PIXELS, HTML_TURNS, collate, sentence_kinds=("trajectory", "chat"), screens_as_html=True)

    def decoder(self, model: PreTrainedModel) -> TextDecoder:
        return TextDecoder(model)

    def cost(self, config: PretrainedConfig) -> TextCost:
        return TextCost(config)


def collate(sentences: list[Sentence]) -> dict:
    """A packed row for `ReadsText.read_row`."""
    row = pack(sentences)
    del row["screen_places"]
    return row


def _source(recipe: ModelRecipe) -> Source:
    return cast_type("Source", recipe.language_model)


LLAMA = TextFamily(LlamaForCausalLM, starts_matching=True)
MISTRAL = TextFamily(MistralForCausalLM, starts_matching=True)
QWEN2 = TextFamily(Qwen2ForCausalLM)
QWEN3 = TextFamily(Qwen3ForCausalLM)
