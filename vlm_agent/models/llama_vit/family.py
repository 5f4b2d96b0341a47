"""The Llama+ViT family: composed of a language model and a vision tower, or loaded whole."""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision
from vlm_agent.models.decoding import CausalDecoder
from vlm_agent.models.family import ModelFamily, Processor
from vlm_agent.models.fused import fuse
from vlm_agent.models.llama_vit.from_scratch import initialise
from vlm_agent.models.llama_vit.long_context import first_position
from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig, projector_kind
from vlm_agent.models.pretrained import language_model, source_configuration, vision_configuration, vision_tower
from vlm_agent.models.starting_heads import LOGIT_SHARE
from vlm_agent.models.weights.adapters import choose_trained_weights, without_adapter, without_zero3_partitioning
from vlm_agent.models.weights.lora_layers import IN_PLACE_FLOPS
from vlm_agent.models.weights.precision import exact_depthwise, to_dtype
from vlm_agent.recipe.model import Lora, ModelRecipe, TrainedParts
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.packing import pack, places


class LlamaViTDecoder(CausalDecoder):
    def __init__(self, model: LlamaViT) -> None:
        super().__init__(model, cast("Any", model.language_model).model, model.logits)
        self._screens = ScreenCache(model)

    def forward(self, row: dict[str, Any], sentences: Sequence[Sentence], **options: Any) -> Any:
        tokens = self._screens([screen for sentence in sentences for screen in sentence.screens])
        embeddings = self._model.embed_seen(row["input_ids"], tokens, row["screen_places"])
        return self.transformer(inputs_embeds=embeddings, position_ids=row["position_ids"], **options)

    def first_position(self, prompt: int) -> int:
        return first_position(self._model.config.ntk_length, prompt)


class ScreenCache:
    """The visual tokens of the most recently used screens, at most `kept_bytes`, for one model whose weights do not
    change.

    An acting agent processes its whole history at every step; an evaluation processes the same screens with and without
    history, and the same grey screen thousands of times. With a small language model, the encoder is most of the work.

    On a CPU, screens are encoded one by one, which is as fast there, so that the result for a screen is bit-identical
    whatever else is requested. On a GPU, all new screens are encoded in one batch.
    """

    def __init__(self, model: LlamaViT, kept_bytes: int = 1 << 28) -> None:
        self._model, self._kept_bytes = model, kept_bytes
        self._tokens: OrderedDict[tuple, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, screens: Sequence[np.ndarray]) -> torch.Tensor:
        """uint8 screens (3, height, width), of the model's size, to visual tokens (screens, tokens, hidden)."""
        kind = self._model.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        keys = [(precision, blake2b(screen.tobytes(), digest_size=16).digest()) for screen in screens]
        with self._lock:
            known = {key: self._tokens[key] for key in keys if key in self._tokens}
        new = {key: screen for key, screen in zip(keys, screens, strict=True) if key not in known}
        known |= self._look(new)
        self._keep({key: known[key] for key in keys})
        return torch.stack([known[key] for key in keys])

    def _look(self, new: dict[tuple, np.ndarray]) -> dict[tuple, torch.Tensor]:
        together = 1 if self._model.device.type == "cpu" else max(1, len(new))
        found: dict[tuple, torch.Tensor] = {}
        keys = list(new)
        for start in range(0, len(keys), together):
            some = keys[start : start + together]
            screens = torch.from_numpy(np.stack([new[key] for key in some])).to(self._model.device)
            # Copies: a view would keep the whole batch in memory.
            found |= zip(some, (tokens.clone() for tokens in self._model.see(screens)[1]), strict=True)
        return found

    def _keep(self, used: dict[tuple, torch.Tensor]) -> None:
        with self._lock:
            for key, tokens in used.items():
                self._tokens[key] = tokens
                self._tokens.move_to_end(key)
            size = sum(tokens.nbytes for tokens in self._tokens.values())
            while size > self._kept_bytes:
                size -= self._tokens.popitem(last=False)[1].nbytes


class LlamaViTCost(DecoderOnlyCost):
    """The vision tower can be any encoder, so it runs once on the meta device, where nothing is computed, and its
    products and results are counted."""

    def __init__(self, config: LlamaViTConfig) -> None:
        super().__init__(config.text_config)
        self._config = config.to_json_string()

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return screen_flops(self._config, train, rank, checkpointing)

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        widest, together = screen_values(self._config)
        return precision.bytes * (4 * widest if train.vision == "frozen" else together)


@lru_cache(maxsize=16)
def screen_flops(config: str, train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
    """The FLOPs of one screen through the encoder and projector of a `LlamaViTConfig`, as JSON."""
    model = _screen_model(config, train, rank)
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE_FLOPS) as counter:
        seen, _ = model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
        forward = counter.get_total_flops()
        if seen.requires_grad:
            seen.sum().backward()
        backward = counter.get_total_flops() - forward
    return Flops(forward, backward, forward if checkpointing and train.vision != "frozen" else 0)


@lru_cache(maxsize=16)
def screen_values(config: str) -> tuple[int, int]:
    """The numbers in the widest result of any layer, and in all results together, when a model of this
    `LlamaViTConfig`, as JSON, sees one screen."""
    sizes: list[int] = []
    model = _screen_model(config, TrainedParts(), rank=0)
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _, __, result: sizes.append(result.numel()))
    model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
    return max(sizes), sum(sizes)


def _screen_model(config_json: str, train: TrainedParts, rank: int) -> LlamaViT:
    """The model on the meta device, its encoder and projector adapted, with one layer of the language model, which does
    not run."""
    config = LlamaViTConfig.from_dict(json.loads(config_json))
    config.text_config.num_hidden_layers = 1
    frozen = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "frozen")
    with torch.device("meta"), without_zero3_partitioning(True):
        model = LlamaViT(config)
        # Fused attention has a kernel for each device, and the counter knows only some; plain products it knows all.
        if model.vision._supports_sdpa and model.vision._can_set_attn_implementation():
            model.vision.set_attn_implementation("eager")
        adapted = choose_trained_weights(model, train.model_copy(update=frozen), Lora(rank=max(rank, 1)))
    model = cast("LlamaViT", without_adapter(adapted))
    # Normalising has no product, and asks for autocast, which the meta device does not have.
    vars(model)["_normalise"] = lambda screens: screens
    return model


_SHARED_KEYS = (
    *("screen_size", "visual_grid", "image_mean", "image_std"),
    *("visual_merge", "visual_norm", "visual_positions", "element_loss"),
)
"""Keys of a composed model that recipe and configuration have in common."""


class LlamaViTFamily(ModelFamily):
    model = LlamaViT

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        if recipe.language_model is None or recipe.vision is None:
            if recipe.min_pixels is not None or recipe.max_pixels is not None:
                raise CheckpointError(
                    "min_pixels and max_pixels: this model sees every screen at one size; remove them"
                )
            return super().configure(recipe, tokenizer)
        text = source_configuration(recipe.language_model, "language_model")
        if recipe.language_model.config is not None:
            text.vocab_size = len(tokenizer)
        return _composite(recipe, vision_configuration(recipe.vision), text)

    def build(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        if recipe.language_model is None or recipe.vision is None:
            return super().build(recipe, tokenizer)
        dtype = getattr(torch, recipe.dtype)
        decoder = language_model(recipe.language_model, len(tokenizer), dtype)
        vision = vision_tower(recipe.vision)
        model = LlamaViT(_composite(recipe, vision.config, decoder.config), vision, decoder)
        _check_parts(model)
        return self.prepare(to_dtype(model, dtype))

    def initialise(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        dtype = model.dtype
        initialise(to_dtype(model, torch.float32), tokenizer, language)  # its decompositions do not support bfloat16
        return to_dtype(model, dtype)

    def prepare(self, model: Any) -> PreTrainedModel:
        choose_attention(model.vision, model.language_model)
        exact_depthwise(model.vision)
        fuse(model)
        return model

    def processor(self, config: PretrainedConfig) -> Processor:
        kind = projector_kind(config.projector)
        screens = FixedScreens(config.screen_size, config.tokens_per_screen, bicubic=kind.bicubic)
        return Processor(screens, kind.template, collate, config.visual_grid if config.element_loss else None)

    def decoder(self, model: Any) -> LlamaViTDecoder:
        return LlamaViTDecoder(model)

    def cost(self, config: PretrainedConfig) -> LlamaViTCost:
        return LlamaViTCost(cast("LlamaViTConfig", config))


LLAMA_VIT = LlamaViTFamily()


def collate(sentences: list[Sentence]) -> dict:
    """A packed row for `LlamaViT.forward`: `pack`, `screens` uint8 (N, 3, height, width) and, where there are any,
    `element_labels` int64 (N, tokens a screen) with `element_places`."""
    row = pack(sentences)
    row["screens"] = torch.from_numpy(np.stack([screen for sentence in sentences for screen in sentence.screens]))
    if sentences[0].element_labels:
        labels = [labels for sentence in sentences for labels in sentence.element_labels]
        row["element_labels"] = element_labels = torch.from_numpy(np.stack(labels))
        row["element_places"] = places(torch.ne(element_labels, IGNORED))
    return row


_TAKE = "Take a llama, qwen2, qwen3 or mistral"
_LOGIT_KEYS = ("logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier")
"""Keys by which some language models scale or cap logits behind their head. A Llama+ViT calls the head alone."""


def _composite(recipe: ModelRecipe, vision: PretrainedConfig, text: PretrainedConfig) -> LlamaViTConfig:
    """Raises CheckpointError for a `text` that is no language model, or whose logits would be others here."""
    kind = f"model.language_model is a {text.model_type!r}"
    if type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CheckpointError(f"{kind}, which is no causal language model. {_TAKE}")
    for key in _LOGIT_KEYS:
        if (value := getattr(text, key, None)) not in (None, 1):
            raise CheckpointError(f"{kind}, which changes the logits of its head ({key}: {value}). {_TAKE}")
    return LlamaViTConfig(
        vision_config=vision,
        text_config=text,
        **{key: getattr(recipe, key) for key in _SHARED_KEYS},
        logit_scale=LOGIT_SHARE * text.hidden_size**-0.5 if recipe.word_tokenizer else 1.0,
    )


def _check_parts(model: LlamaViT) -> None:
    for path in model.parts.values():
        try:
            model.get_submodule(path)
        except AttributeError:
            raise CheckpointError(
                f"model.language_model is a {model.config.text_config.model_type!r}, which is not built as Llama is: "
                f"it has no {path}. {_TAKE}"
            ) from None
