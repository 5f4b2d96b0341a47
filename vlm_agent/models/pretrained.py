"""Loads whole models and parts from the sources of a recipe: a checkpoint, or a configuration with random weights."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from vlm_agent.errors import CheckpointError
from vlm_agent.installation import install_line
from vlm_agent.models.hub import settle_connection
from vlm_agent.recipe.model import Source

Model = TypeVar("Model", bound=PreTrainedModel)


def whole_configuration(source: Source, key: str = "vlm", **overrides: Any) -> PretrainedConfig:
    """The configuration of a whole model. `key`: the recipe's key of the source. `overrides`: keys that replace those
    of a source with random weights."""
    if source.config is not None:
        return configuration(source, key, **overrides)
    with explain_load_errors(source, key):
        return AutoConfig.from_pretrained(source.location, **hub_options(source))


def whole_model(
    model_class: type[Model], source: Source, config: PretrainedConfig, dtype: str, key: str = "vlm"
) -> Model:
    """The model of a source. `config` replaces the configuration of a checkpoint. `key`: the recipe's key of it."""
    if source.config is not None:
        return model_class._from_config(config, dtype=getattr(torch, dtype))
    with explain_load_errors(source, key):
        return complete_model(
            model_class,
            source.location,
            f"model.{key}.checkpoint {source.checkpoint!r}",
            config=config,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            **hub_options(source),
        )


def complete_model(
    model_class: Any, checkpoint: str | Path, name: str, unused: Sequence[str] = (), **options: Any
) -> Any:
    """The model of `from_pretrained` with `options`. `model_class`: also an auto class. Raises CheckpointError, which
    names the checkpoint by `name`, if it lacks weights: transformers leaves them random and warns. `unused`: words in
    the names of weights that may be missing."""
    model, report = model_class.from_pretrained(checkpoint, output_loading_info=True, **options)
    missing = sorted(key for key in report["missing_keys"] if not any(word in key for word in unused))
    if missing:
        raise CheckpointError(
            f"{name} lacks {len(missing)} of the model's weights, {missing[0]} "
            "first: it is incomplete, or of another model than its config.json says; download it again"
        )
    return model


def language_configuration(source: Source) -> PretrainedConfig:
    """A language model's configuration, without reading weights. Raises CheckpointError if it cannot be loaded."""
    if source.config is not None:
        return configuration(source, "language_model")
    with explain_load_errors(source, "language_model"):
        return AutoConfig.from_pretrained(source.location, **hub_options(source))


def language_model(source: Source, vocabulary: int, dtype: torch.dtype) -> PreTrainedModel:
    """In `dtype` if read from safetensors (7 B weights are 27 GB in float32), else in float32."""
    if source.config is not None:
        return AutoModelForCausalLM.from_config(configuration(source, "language_model", vocab_size=vocabulary))
    with explain_load_errors(source, "language_model"):
        loaded = complete_model(
            AutoModelForCausalLM,
            source.location,
            f"model.language_model.checkpoint {source.checkpoint!r}",
            dtype=dtype if source.gguf_file is None else torch.float32,
            use_safetensors=source.gguf_file is None,
            **hub_options(source),
        )
    if source.gguf_file is None:
        return loaded
    # transformers can neither cast nor save a model read from GGUF, so the weights move to a new model.
    config = AutoConfig.for_model(**{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"})
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(loaded.state_dict())
    return fresh


def vision_configuration(source: Source) -> PretrainedConfig:
    if source.config is not None:
        return configuration(source, "vision")
    with explain_load_errors(source, "vision"):
        config = AutoConfig.from_pretrained(source.location, **hub_options(source))
    return getattr(config, "vision_config", config)


def vision_tower(source: Source) -> PreTrainedModel:
    """Float32."""
    if source.config is not None:
        with explain_missing_extras("vision"):
            return AutoModel.from_config(configuration(source, "vision"))
    with explain_load_errors(source, "vision"):
        model = complete_model(
            AutoModel,
            source.location,
            f"model.vision.checkpoint {source.checkpoint!r}",
            unused=("pooler.",),  # which a classifier of pictures does not have
            dtype=torch.float32,
            use_safetensors=True,
            **hub_options(source),
        )
    return getattr(model, "vision_model", model)  # CLIP and SigLIP include a text tower


def configuration(source: Source, part: str, **overrides: Any) -> PretrainedConfig:
    """transformers' configuration of a part with random weights.

    Raises CheckpointError for an unknown key, which transformers would silently ignore, and for a value of another type
    than the key has.
    """
    content: dict[str, Any] = source.config or {}
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise CheckpointError(
            f"model.{part}.config: model_type {model_type!r} is unknown; did you mean "
            f"{nearest(str(model_type), CONFIG_MAPPING)!r}?"
        )
    _check_keys(content, AutoConfig.for_model(model_type), f"model.{part}.config")
    with explain_value_errors(f"model.{part}.config"):
        return AutoConfig.for_model(**content | overrides)


@contextmanager
def explain_value_errors(where: str) -> Iterator[None]:
    """Raises CheckpointError, one line that names `where`, in place of the errors of a configuration for a value that
    it cannot have."""
    try:
        yield
    except (StrictDataclassError, TypeError, ValueError) as error:
        # "Validation error for field 'd_model':" and the reason in a line of its own, which names the field again
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("TypeError: ")
        raise CheckpointError(f"{where}: {reason}") from None


def _check_keys(content: dict, defaults: PretrainedConfig, where: str) -> None:
    known = {*defaults.to_dict(), *defaults.attribute_map, *_LEGACY_KEYS}
    for key in content.keys() - known:
        raise CheckpointError(
            f"{where}: {defaults.model_type} has no key {key!r}; did you mean {nearest(key, known)!r}?"
        )
    for name in defaults.sub_configs:
        if isinstance(content.get(name), dict) and isinstance(getattr(defaults, name, None), PretrainedConfig):
            _check_keys(content[name], getattr(defaults, name), f"{where}.{name}")


_LEGACY_KEYS = {"rope_theta"}
"""Keys that transformers reads but does not list."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The most similar known word."""
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0)[0]


def hub_options(source: Source) -> dict[str, Any]:
    """The keyword arguments of `from_pretrained` that say which files of a checkpoint are read.

    Raises CheckpointError for a revision of a folder, which transformers would ignore.
    """
    if source.revision is not None and Path(source.location).is_dir():
        raise CheckpointError(
            f"revision {source.revision!r} is for names on huggingface.co, and {source.checkpoint!r} is a folder; "
            "remove revision"
        )
    options = {"gguf_file": source.gguf_file, "revision": source.revision}
    return {key: value for key, value in options.items() if value is not None}


_EXTRAS = {"timm": "vision-towers", "torchvision": "vision-towers", "gguf": "gguf"}
"""The extra with each library that transformers asks for when it loads a checkpoint."""


@contextmanager
def explain_missing_extras(key: str) -> Iterator[None]:
    """Raises CheckpointError where transformers lacks a library of an extra for the part `key`."""
    try:
        yield
    except ImportError as error:
        missing = next((name for name in _EXTRAS if name in str(error)), None)
        if missing is None:
            raise
        raise CheckpointError(f"model.{key} needs {missing}; {install_line(_EXTRAS[missing])}") from None


@contextmanager
def explain_load_errors(source: Source, key: str) -> Iterator[None]:
    """Raises CheckpointError in place of transformers' OSError, for a missing folder, an unknown or gated name, a lost
    connection or a folder without safetensors. A lost connection fails at the first request."""
    settle_connection(source)
    try:
        with explain_missing_extras(key):
            yield
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        if "safetensors" in reason:
            loader = "AutoModelForCausalLM" if key == "language_model" else "AutoModel"
            reason += (
                " Weights are read from safetensors only; transformers converts .bin files: "
                f"{loader}.from_pretrained({source.checkpoint!r}).save_pretrained(FOLDER)"
            )
        raise CheckpointError(
            f"model.{key}.checkpoint {source.checkpoint!r} cannot be loaded: {reason}\n"
            "Give the path of a folder that holds it, or a name on huggingface.co. A gated one, such as Llama 2, also "
            "needs its licence accepted on its page there and `hf auth login` here."
        ) from error
