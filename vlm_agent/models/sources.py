"""Models, whole or parts, from what a recipe calls a source: a checkpoint, or a configuration with random weights."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from vlm_agent.models.llama_vit import LlamaViT, LlamaViTConfig
from vlm_agent.models.qwen_vl import IMAGE_TOKEN, QWEN_VL
from vlm_agent.models.recipe import Source


class CheckpointError(ValueError):
    """A checkpoint that cannot be had, with what to do."""


FAMILIES = {LlamaViTConfig.model_type: LlamaViT} | QWEN_VL
"""The class of a whole vision-language model, by its configuration's `model_type`."""


def model_class(config: PretrainedConfig, part: str = "vlm") -> type[PreTrainedModel]:
    """Raises CheckpointError for a family that is not known here."""
    if config.model_type not in FAMILIES:
        raise CheckpointError(
            f"model.{part} is a {config.model_type!r}, and there are {', '.join(FAMILIES)}. The published Qwen-VL of "
            "2023 is converted first: vlm-agent convert-checkpoint"
        )
    return FAMILIES[config.model_type]


def whole_model(source: Source, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype) -> PreTrainedModel:
    """The vision-language model of a source; with random weights, as many tokens as the tokenizer has."""
    config = whole_configuration(source, tokenizer)
    chosen = model_class(config)
    if source.config is not None:
        return chosen._from_config(config, dtype=dtype)
    with wanted(source, "vlm"):
        model, report = chosen.from_pretrained(
            source.checkpoint, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    if report["missing_keys"]:  # transformers would leave them random, with a warning
        missing = sorted(report["missing_keys"])
        raise CheckpointError(
            f"model.vlm.checkpoint {source.checkpoint!r} lacks {len(missing)} of the model's weights, {missing[0]} "
            "first: it is cut short, or of another model than its config.json says; download it again"
        )
    return model


def whole_configuration(source: Source, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    if source.config is None:
        with wanted(source, "vlm"):
            return AutoConfig.from_pretrained(source.checkpoint)
    marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = source.config.get("text_config", {}) | {"vocab_size": len(tokenizer)} | marks
    here = {"text_config": text, "image_token_id": tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)}
    return configuration(source, "vlm", **here)


def language_configuration(source: Source) -> PretrainedConfig:
    """What a language model's configuration says, without reading weights; CheckpointError where it cannot be had."""
    if source.config is not None:
        return configuration(source, "language_model")
    with wanted(source, "language_model"):
        return AutoConfig.from_pretrained(source.checkpoint, **gguf(source))


def language_model(source: Source, vocabulary: int, dtype: torch.dtype) -> PreTrainedModel:
    """In `dtype` where it is read from safetensors: 7 B weights are 27 GB in float32; else float32."""
    if source.config is not None:
        return AutoModelForCausalLM.from_config(configuration(source, "language_model", vocab_size=vocabulary))
    with wanted(source, "language_model"):
        loaded = AutoModelForCausalLM.from_pretrained(
            source.checkpoint,
            dtype=dtype if source.gguf_file is None else torch.float32,
            use_safetensors=source.gguf_file is None,
            **gguf(source),
        )
    if source.gguf_file is None:
        return loaded
    # A model read from GGUF refuses to be cast or saved; its weights in a fresh model of the same config do not.
    config = AutoConfig.for_model(**{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"})
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(loaded.state_dict())
    return fresh


def vision_configuration(source: Source) -> PretrainedConfig:
    if source.config is not None:
        return configuration(source, "vision")
    with wanted(source, "vision"):
        config = AutoConfig.from_pretrained(source.checkpoint)
    return getattr(config, "vision_config", config)


def vision_tower(source: Source) -> PreTrainedModel:
    """Float32."""
    if source.config is not None:
        return AutoModel.from_config(configuration(source, "vision"))
    with wanted(source, "vision"):
        model = AutoModel.from_pretrained(source.checkpoint, dtype=torch.float32, use_safetensors=True)
    return getattr(model, "vision_model", model)  # CLIP and SigLIP bring a text tower too


def configuration(source: Source, part: str, **known_here) -> PretrainedConfig:
    """transformers' configuration of a part; it would take a misspelt key, keep the default and say nothing."""
    model_type = source.config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        nearest = difflib.get_close_matches(str(model_type), list(CONFIG_MAPPING), n=1, cutoff=0)[0]
        raise CheckpointError(f"model.{part}.config: model_type {model_type!r} is unknown; did you mean {nearest!r}?")
    _check_keys(source.config, AutoConfig.for_model(model_type), f"model.{part}.config")
    return AutoConfig.for_model(**source.config | known_here)


def _check_keys(given: dict, defaults: PretrainedConfig, where: str) -> None:
    known = {*defaults.to_dict(), *defaults.attribute_map, *_LEGACY_KEYS}
    for key in given.keys() - known:
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
        raise CheckpointError(f"{where}: {defaults.model_type} has no key {key!r}; did you mean {nearest!r}?")
    for name in defaults.sub_configs:
        if isinstance(given.get(name), dict) and isinstance(getattr(defaults, name, None), PretrainedConfig):
            _check_keys(given[name], getattr(defaults, name), f"{where}.{name}")


_LEGACY_KEYS = {"rope_theta"}
"""Keys that transformers still reads and no longer lists."""


def gguf(source: Source) -> dict[str, str]:
    return {} if source.gguf_file is None else {"gguf_file": source.gguf_file}


@contextmanager
def wanted(source: Source, key: str) -> Iterator[None]:
    """transformers raises OSError for a missing folder, an unknown or gated name, a lost connection, and for a folder
    without safetensors."""
    try:
        yield
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"model.{key}.checkpoint {source.checkpoint!r} cannot be loaded: {reason}\n"
            "Give the path of a folder that holds it, or a name on huggingface.co. A gated one, such as Llama 2, also "
            "needs its licence accepted on its page there and `hf auth login` here."
        ) from error
