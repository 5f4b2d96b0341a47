"""The Auto-UI family: a T5 from a checkpoint or a configuration, with a fusion of screen features."""

from collections.abc import Sequence
from typing import cast as cast_type

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, T5Config
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.collate import collate
from vlm_agent.models.auto_ui.cost import AutoUiCost
from vlm_agent.models.auto_ui.decoder import AutoUiDecoder
from vlm_agent.models.auto_ui.model import AutoUi, AutoUiConfig, T5HeadApart, check_text_config, prefer_near_tokens
from vlm_agent.models.auto_ui.word_embeddings import copy_coordinates, copy_word_embeddings
from vlm_agent.models.family import ModelFamily, Processor, saved_model_type
from vlm_agent.models.features import feature_shape
from vlm_agent.models.pretrained import configuration, source_configuration, whole_model
from vlm_agent.models.weights.precision import cast
from vlm_agent.recipe.model import FeatureSettings, ModelRecipe, Source
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.templates import PLAIN

_KEY = "encoder_decoder"
_NO_SCREENS = FixedScreens((1, 1), 0)
"""The model reads features; pixels are seen by their extractor."""


class AutoUiFamily(ModelFamily):
    model = AutoUi

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> AutoUiConfig:
        source, features = _origin(recipe)
        if source.config is not None:
            marks = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
            text = configuration(source, _KEY, vocab_size=len(tokenizer), **marks)
        else:
            _check_model_type(source)
            text = source_configuration(source, _KEY)
        _check_dtype(text, f"model.{_KEY}.checkpoint {source.checkpoint!r}")
        if isinstance(text, AutoUiConfig):
            config = _with_features(text, features)
        elif isinstance(text, T5Config):
            tied = text.scale_decoder_outputs  # as in published checkpoints; `build` looks at the weights
            config = AutoUiConfig(text, _described(features), tie_word_embeddings=tied)
        else:
            raise CheckpointError(f"model.{_KEY}.config: model_type must be t5, not {text.model_type!r}")
        check_text_config(config.text_config, f"model.{_KEY}.{'config' if source.config else 'checkpoint'}")
        embeddings = config.text_config.vocab_size
        if len(tokenizer) > embeddings:
            raise CheckpointError(
                f"model.{_KEY}.checkpoint {source.checkpoint!r}: its tokenizer has {len(tokenizer)} tokens and its "
                f"model {embeddings} embeddings: they are not of one checkpoint"
            )
        return config

    def build(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        source, _ = _origin(recipe)
        config = self.configure(recipe, tokenizer)
        if source.config is None and saved_model_type(source, _KEY) != AutoUiConfig.model_type:
            return self.prepare(_around_t5(source, config, recipe))
        model = whole_model(AutoUi, source, config, recipe.dtype, _KEY)
        if source.config is not None:
            for stack in (model.t5.encoder, model.t5.decoder):
                prefer_near_tokens(stack)
        if recipe.word_embeddings is not None:
            note = copy_word_embeddings(recipe.word_embeddings, model, tokenizer)
            model.notes, model.words_of = (note,), recipe.word_embeddings
        return self.prepare(model)

    def initialise(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        own = _own(model)
        if own.words_of is not None:
            copy_coordinates(own.words_of, own, tokenizer, language)
        return model

    def notes(self, model: PreTrainedModel) -> Sequence[str]:
        return _own(model).notes

    def prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        _check_dtype(model, "the model")
        return model

    def processor(self, config: PretrainedConfig) -> Processor:
        return Processor(_NO_SCREENS, PLAIN, collate, sentence_kinds=("chain_of_actions",))

    def decoder(self, model: PreTrainedModel) -> AutoUiDecoder:
        return AutoUiDecoder(_own(model))

    def cost(self, config: PretrainedConfig) -> AutoUiCost:
        return AutoUiCost(cast_type("AutoUiConfig", config))


AUTO_UI = AutoUiFamily()


def _own(model: PreTrainedModel) -> AutoUi:
    return cast_type("AutoUi", model)


def _origin(recipe: ModelRecipe) -> tuple[Source, FeatureSettings]:
    if recipe.encoder_decoder is None or recipe.features is None:
        raise CheckpointError(
            "this checkpoint reads screen features: set model.encoder_decoder to it, and model.features"
        )
    return recipe.encoder_decoder, recipe.features


def _check_model_type(source: Source) -> None:
    model_type = saved_model_type(source, _KEY)
    if model_type not in ("t5", AutoUiConfig.model_type):
        raise CheckpointError(
            f"model.{_KEY}.checkpoint {source.checkpoint!r} is a {model_type!r}; choose a T5, a FLAN-T5, a "
            "FLAN-Alpaca, or an Auto-UI that vlm-agent convert-checkpoint wrote"
        )


def _check_dtype(weights: PretrainedConfig | PreTrainedModel, name: str) -> None:
    if weights.dtype == torch.float16:
        raise CheckpointError(
            f"{name} is in float16, in which T5's activations overflow; rewrite it in float32: "
            "from_pretrained(FOLDER, dtype=torch.float32).save_pretrained(NEW_FOLDER)"
        )


def _described(features: FeatureSettings) -> dict:
    tokens, size = feature_shape(features)
    return features.model_dump() | {"tokens": tokens, "size": size}


def _with_features(config: AutoUiConfig, features: FeatureSettings) -> AutoUiConfig:
    """The checkpoint's configuration with the recipe's features, which must be those that it was trained on."""
    described = _described(features)
    for key in ("size", "extractor", "form"):
        if key in config.features and config.features[key] != described[key]:
            raise CheckpointError(
                f"model.{_KEY}.checkpoint was trained on features whose {key} is {config.features[key]}, and those of "
                f"model.features have {key} {described[key]}; choose the same features"
            )
    config.features = config.features | described
    return config


def _around_t5(source: Source, config: AutoUiConfig, recipe: ModelRecipe) -> AutoUi:
    """A T5 with a new fusion, whose random weights come from torch's global generator."""
    if recipe.train.projector != "full":
        raise CheckpointError(
            f"model.{_KEY}.checkpoint {source.checkpoint!r} is a T5 without a fusion of screen features, and a new "
            "fusion has random weights: set train.projector to full"
        )
    kind = T5ForConditionalGeneration if config.text_config.scale_decoder_outputs else T5HeadApart
    t5 = whole_model(kind, source, config.text_config, recipe.dtype, _KEY)
    config.tie_word_embeddings = t5.lm_head.weight is t5.shared.weight
    model = cast(AutoUi(config, t5), getattr(torch, recipe.dtype))
    model.notes = (f"{source.checkpoint} has no fusion of screen features: it starts from random weights",)
    return model
