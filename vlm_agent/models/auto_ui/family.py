"""The Auto-UI family: a T5 from a checkpoint or a configuration, with a fusion of screen features."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, T5Config
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.convert import ARCHITECTURE
from vlm_agent.models.auto_ui.cost import AutoUiCost
from vlm_agent.models.auto_ui.model import AutoUi, AutoUiConfig, T5HeadApart, check_text_config, prefer_near_tokens
from vlm_agent.models.build import build_model, saved_tokenizer
from vlm_agent.models.decoding import Decoder, PrefilledSequence, growing_cache
from vlm_agent.models.family import ModelFamily, Processor, saved_model_type
from vlm_agent.models.features import feature_shape
from vlm_agent.models.pretrained import configuration, source_configuration, whole_model
from vlm_agent.models.run_layout import base_folder, checked
from vlm_agent.models.weights.precision import to_dtype
from vlm_agent.models.word_tokenizer import coordinate_ids
from vlm_agent.recipe.model import FeatureSettings, ModelRecipe, WeightsSource
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.image_sizes import NO_PIXELS
from vlm_agent.sentences.packing import supervision_columns, target_places
from vlm_agent.sentences.templates import PLAIN


def collate(sentences: list[Sentence]) -> dict:
    """The keyword arguments of `AutoUi.forward`, and the columns beside `shift_labels`, (B, T).

    The source of a sentence is what precedes its first label, the target is the rest. Plain numbers, which stay on the
    CPU: `source_lengths`, `target_lengths` in tokens and `feature_counts`, the feature vectors, of each sentence.
    """
    starts = [sentence.prompt_length for sentence in sentences]
    targets = [_target(sentence, start) for sentence, start in zip(sentences, starts, strict=True)]
    roles, weights = (_padded([getattr(one, name) for one in targets], fill) for name, fill in _COLUMNS)
    columns = supervision_columns(roles, weights)
    labels = torch.tensor(_padded([one.labels for one in targets], IGNORED))
    return {
        **sources([sentence.input_ids[:start] for sentence, start in zip(sentences, starts, strict=True)]),
        **screen_features([sentence.screens for sentence in sentences]),
        "shift_labels": labels,
        "target_places": target_places(labels, shift=False),
        "kinds": torch.tensor(_padded([one.kinds for one in targets], NO_ACTION)),
        "about": [sentence.about for sentence in sentences],
        "source_lengths": starts,
        "target_lengths": [len(one) for one in targets],
        "feature_counts": [sum(len(screen) for screen in sentence.screens) for sentence in sentences],
        **{name: column.view(len(targets), -1) for name, column in columns.items()},
    }


_COLUMNS = (("roles", 0), ("weights", 1.0))
"""Columns of a sentence that a batch contains where they differ from the default, and their padding."""


def sources(ids: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, int64 (B, L), padded on the right."""
    return {
        "input_ids": torch.tensor(_padded(ids, 0)),
        "attention_mask": torch.tensor(_padded([[1] * len(one) for one in ids], 0)),
    }


def screen_features(screens: Sequence[Sequence[np.ndarray]]) -> dict[str, torch.Tensor]:
    """`features` (B, K, size) of each sentence's screens, (T, size) each, behind one another.

    Where some have more screens than others, also `feature_mask` bool (B, K).
    """
    vectors = [torch.from_numpy(np.concatenate(some)) for some in screens]
    lengths = torch.tensor([len(one) for one in vectors])
    features = torch.nn.utils.rnn.pad_sequence(vectors, batch_first=True)
    mask = torch.arange(features.shape[1]) < lengths[:, None]
    return {"features": features} if bool(mask.all()) else {"features": features, "feature_mask": mask}


def _target(sentence: Sentence, start: int) -> Sentence:
    target = sentence.suffix(start)
    if target.labels != target.input_ids:
        raise ValueError(f"{sentence.about}: a token of the target has no label, so the decoder would not read it")
    return target


def _padded(rows: Sequence[Sequence[float]], padding: float) -> list[list]:
    longest = max(map(len, rows))
    return [[*row, *[padding] * (longest - len(row))] for row in rows]


class EncodedCache(EncoderDecoderCache):
    """The decoder's keys and values, and what they were computed from: `encoded` (B, L, width) and its mask (B, L).

    `logits` (B, vocabulary): of the next token of each row, as of the last `begin_batch` or `step_batch`.
    """

    logits: torch.Tensor

    def __init__(self, encoded: torch.Tensor, mask: torch.Tensor) -> None:
        super().__init__(growing_cache(), DynamicCache())
        self.encoded, self.mask = encoded, mask

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        for cache in (self.self_attention_cache, self.cross_attention_cache):
            cache.batch_select_indices(indices)
        self.encoded, self.mask, self.logits = self.encoded[indices], self.mask[indices], self.logits[indices]

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all other rows."""
        self.batch_select_indices(torch.tensor(rows, device=self.logits.device))


class AutoUiDecoder(Decoder):
    """Sentences hold sources only; the target is decoded."""

    def __init__(self, model: AutoUi) -> None:
        self._model = model

    def prefill(self, sentences: Sequence[Sentence]) -> None:
        """Every step has an encoder input of its own."""

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        cache = self.begin_batch([sentence])
        return PrefilledSequence(cache, cache.logits[0], 1)

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """All rows of the cache have equally many tokens, so positions and mask follow from the cache."""
        return self._next(ids.to(self._model.device), cast("EncodedCache", cache))

    def begin_batch(self, sentences: Sequence[Sentence]) -> EncodedCache:
        """Encodes all sentences and decodes the start token."""
        model = self._model
        batch = sources([sentence.input_ids for sentence in sentences])
        batch |= screen_features([sentence.screens for sentence in sentences])
        here = {name: value.to(model.device) for name, value in batch.items()}
        cache = EncodedCache(model.encode(**here), here["attention_mask"])
        start = torch.full((len(sentences), 1), model.config.start_token_id, device=model.device)
        cache.logits = self._next(start, cache)[:, -1]
        return cache

    def step_batch(self, ids: torch.Tensor, batch: EncodedCache) -> torch.Tensor:
        """Appends a token to each sentence, int64 (B,), and returns the logits (B, vocabulary) of the next."""
        batch.logits = self._next(ids.to(self._model.device)[:, None], batch)[:, -1]
        return batch.logits

    def _next(self, ids: torch.Tensor, cache: EncodedCache) -> torch.Tensor:
        hidden = self._model.decode(ids, cache.encoded, cache.mask, cache)
        return self._model.logits(hidden)


_KEY = "encoder_decoder"


class AutoUiFamily(ModelFamily):
    model = AutoUi

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> AutoUiConfig:
        source, features = _origin(recipe)
        name = f"model.{_KEY}.checkpoint {source.checkpoint!r}"
        if source.config is not None:
            marks = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
            text = configuration(source, _KEY, vocab_size=len(tokenizer), **marks)
        else:
            model_type = saved_model_type(source, _KEY)
            if model_type not in ("t5", AutoUiConfig.model_type):
                raise CheckpointError(
                    f"{name} is a {model_type!r}; choose a T5, a FLAN-T5, a FLAN-Alpaca, or an Auto-UI that vlm-agent "
                    "convert-checkpoint wrote"
                )
            text = source_configuration(source, _KEY)
            if ARCHITECTURE in (text.architectures or ()):
                raise CheckpointError(f"{name} is a published Auto-UI; convert it first: vlm-agent convert-checkpoint")
        _check_dtype(text, name)
        if isinstance(text, AutoUiConfig):
            config = _with_features(text, features)
        elif isinstance(text, T5Config):
            tied = text.scale_decoder_outputs  # as in published checkpoints; `build` looks at the weights
            config = AutoUiConfig(text, _described(features), tie_word_embeddings=tied)
        else:
            raise CheckpointError(f"model.{_KEY}.config: model_type must be t5, not {text.model_type!r}")
        check_text_config(config.text_config, f"model.{_KEY}.{'config' if source.config else 'checkpoint'}")
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
        self, model: Any, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        if model.words_of is not None:
            copy_coordinates(model.words_of, model, tokenizer, language)
        return model

    def notes(self, model: Any) -> Sequence[str]:
        return model.notes

    def prepare(self, model: Any) -> PreTrainedModel:
        _check_dtype(model, "the model")
        return model

    def processor(self, config: PretrainedConfig) -> Processor:
        return Processor(NO_PIXELS, PLAIN, collate, sentence_kinds=("chain_of_actions",))

    def decoder(self, model: Any) -> AutoUiDecoder:
        return AutoUiDecoder(model)

    def cost(self, config: PretrainedConfig) -> AutoUiCost:
        return AutoUiCost(cast("AutoUiConfig", config))


AUTO_UI = AutoUiFamily()


def _origin(recipe: ModelRecipe) -> tuple[WeightsSource, FeatureSettings]:
    if recipe.encoder_decoder is None or recipe.features is None:
        raise CheckpointError(
            "this checkpoint reads screen features: set model.encoder_decoder to it, and model.features"
        )
    return recipe.encoder_decoder, recipe.features


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


def _around_t5(source: WeightsSource, config: AutoUiConfig, recipe: ModelRecipe) -> AutoUi:
    """A T5 with a new fusion, whose random weights come from torch's global generator."""
    if recipe.train.projector != "full":
        raise CheckpointError(
            f"model.{_KEY}.checkpoint {source.checkpoint!r} is a T5 without a fusion of screen features, and a new "
            "fusion has random weights: set train.projector to full"
        )
    kind = T5ForConditionalGeneration if config.text_config.scale_decoder_outputs else T5HeadApart
    t5 = whole_model(kind, source, config.text_config, recipe.dtype, _KEY)
    config.tie_word_embeddings = t5.lm_head.weight is t5.shared.weight
    model = to_dtype(AutoUi(config, t5), getattr(torch, recipe.dtype))
    model.notes = (f"{source.checkpoint} has no fusion of screen features: it starts from random weights",)
    return model


@torch.no_grad()
def copy_coordinates(
    base: str, model: AutoUi, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
) -> None:
    """Copies to each coordinate of `language` the embedding of the base's nearest one on the same axis, in place: in
    `phone_vlm_tiny` they lie near the positions that are added to its visual tokens.

    Coordinates that the base's vocabulary contains keep the embedding of that token. Call it after
    `copy_word_embeddings`, which checks the base.
    """
    own, table = _words_of(base)
    theirs = read_recipe(checked(base_folder(base)).recipe).action_language.build().vocabulary()
    shared = {one.piece for one in theirs.coordinates}
    embeddings = model.t5.shared.weight
    for axis in (0, 1):
        sources = theirs.axis(axis)
        targets = [one for one in language.axis(axis) if one.piece not in shared]
        if not sources or not targets:
            continue
        places = torch.tensor([one.place for one in sources])
        nearest = [int((places - one.place).abs().argmin()) for one in targets]
        rows = torch.tensor(coordinate_ids(own, sources))[nearest]
        embeddings[coordinate_ids(tokenizer, targets)] = table[rows].to(embeddings.dtype)


@torch.no_grad()
def copy_word_embeddings(base: str, model: AutoUi, tokenizer: PreTrainedTokenizerBase) -> str:
    """Copies the embeddings of the tokens that both vocabularies contain, in place. Returns a line about them.

    `base`: the name of an embedded model, or the path of a run. Raises CheckpointError if its embeddings have another
    width, or no token is shared, and what `build_model` raises.
    """
    own, table = _words_of(base)
    embeddings = model.t5.shared.weight
    if table.shape[1] != embeddings.shape[1]:
        raise CheckpointError(
            f"model.word_embeddings {base}: its embeddings have {table.shape[1]} numbers and d_model is "
            f"{embeddings.shape[1]}; set d_model to {table.shape[1]}, or remove word_embeddings"
        )
    theirs, ours = own.get_vocab(), tokenizer.get_vocab()
    shared = sorted(theirs.keys() & ours.keys())
    if not shared:
        raise CheckpointError(f"model.word_embeddings {base}: no token is in both vocabularies; remove word_embeddings")
    embeddings[[ours[token] for token in shared]] = table[[theirs[token] for token in shared]].to(embeddings.dtype)
    return f"word embeddings: {len(shared)} of {len(ours)} tokens start from {base}'s"


def _words_of(base: str) -> tuple[PreTrainedTokenizerBase, torch.Tensor]:
    """The base's tokenizer, and its table of embeddings (tokens, width)."""
    tokenizer = saved_tokenizer(checked(base_folder(base)))
    model = build_model(ModelRecipe(base=base), tokenizer)
    return tokenizer, cast("torch.Tensor", model.get_input_embeddings().weight)
