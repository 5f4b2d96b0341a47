"""Loads whole models and parts from the sources of a recipe: a checkpoint, or a configuration with random weights."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from vlm_agent.errors import CheckpointError
from vlm_agent.files.console import hide_loading_bars
from vlm_agent.files.installation import install_line
from vlm_agent.files.weight_files import check_file, check_folder, refuse_missing_folder
from vlm_agent.models.hub import CONFIG, cached_path, settle_connection
from vlm_agent.recipe.model import WeightsSource

Model = TypeVar("Model", bound=PreTrainedModel)

hide_loading_bars()


def source_configuration(source: WeightsSource, key: str = "vlm", **overrides: Any) -> PretrainedConfig:
    """The configuration of a source, without reading weights. `key`: the recipe's key of the source. `overrides`: keys
    that replace those of a source with random weights. Raises CheckpointError if it cannot be loaded."""
    if source.config is not None:
        return configuration(source, key, **overrides)
    with explain_load_errors(source, key):
        return load_configuration(source.location, _name(source, key), **hub_options(source))


_BAD_VALUES = (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
"""What transformers raises for values that a configuration cannot have, such as no heads."""


def load_configuration(checkpoint: str | Path, name: str, **options: str) -> PretrainedConfig:
    """The configuration of a checkpoint. Raises CheckpointError, which names the checkpoint by `name`, where
    transformers cannot read config.json, and for quantised weights."""
    try:
        config = AutoConfig.from_pretrained(checkpoint, **options)
    except _BAD_VALUES as error:
        raise CheckpointError(f"{name}: config.json cannot be read: {reason_of(error)}") from None
    if (method := getattr(config, "quantization_config", None)) is not None and "gguf_file" not in options:
        raise _quantised(name, method)
    return config


def _quantised(name: str, method: Any) -> CheckpointError:
    """Refused: their library may be missing, some GPUs and CPUs silently compute with bfloat16 ones instead, and an
    adapter could not be merged into them."""
    kind = method.get("quant_method") if isinstance(method, dict) else getattr(method, "quant_method", None)
    return CheckpointError(
        f"{name} has quantised weights ({kind or 'of an unknown method'}); take the checkpoint that they were made "
        "from, and set model.quantisation to nf4 or int8 to quantise its language model here"
    )


def load_tokenizer(checkpoint: str | Path, name: str, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint. Raises CheckpointError, which names the checkpoint by `name`, where its files are
    damaged, or of another kind than config.json names."""
    try:
        if Path(checkpoint).is_dir():
            check_folder(Path(checkpoint), weights=False)
        return AutoTokenizer.from_pretrained(checkpoint, **options)
    except (OSError, CheckpointError):
        raise
    except StrictDataclassError as error:
        raise CheckpointError(f"{name}: config.json cannot be read: {reason_of(error)}") from None
    except Exception as error:  # noqa: BLE001 (tokenizers raises Exception itself)
        if (problem := _problem_of_extra(error)) is not None:
            raise CheckpointError(f"{name} {problem}") from None
        raise CheckpointError(
            f"{name}: its tokenizer cannot be loaded: {reason_of(error)} Copy the files of the tokenizer that the "
            "model was trained with into the folder"
        ) from None


def reason_of(error: Exception) -> str:
    """One line of a library's error; the kind of one without a text."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if isinstance(error, StrictDataclassError) else 0].strip()


def whole_model(
    model_class: type[Model], source: WeightsSource, config: PretrainedConfig, dtype: str, key: str = "vlm"
) -> Model:
    """The model of a source. `config` replaces the configuration of a checkpoint. `key`: the recipe's key of it."""
    if source.config is not None:
        with explain_impossible_values(f"model.{key}.config"):
            return model_class._from_config(config, dtype=getattr(torch, dtype))
    return _loaded(model_class, source, key, config=config, dtype=getattr(torch, dtype))


def _loaded(model_class: Any, source: WeightsSource, key: str, **options: Any) -> Any:
    """The model of a source that is a checkpoint. `options`: of `complete_model`."""
    with explain_load_errors(source, key):
        options |= {"use_safetensors": source.gguf_file is None} | hub_options(source)
        return complete_model(model_class, source.location, _name(source, key), **options)


def complete_model(
    model_class: Any, checkpoint: str | Path, name: str, unused: Sequence[str] = (), **options: Any
) -> Any:
    """The model of `from_pretrained` with `options`. `model_class`: also an auto class. Raises CheckpointError, which
    names the checkpoint by `name`, if it lacks weights: transformers leaves them random and warns. `unused`: words in
    the names of weights that may be missing."""
    if Path(checkpoint).is_dir() and "gguf_file" not in options:
        check_folder(Path(checkpoint))
    try:
        model, report = model_class.from_pretrained(checkpoint, output_loading_info=True, **options)
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise CheckpointError(f"{name} has weights of other shapes: it is damaged, or {_OTHER}") from None
    except _BAD_VALUES as error:
        raise CheckpointError(f"{name}: config.json has values that no model can have: {error!r}") from None
    missing = sorted(key for key in report["missing_keys"] if not any(word in key for word in unused))
    surplus = sorted(report["unexpected_keys"])
    if unused:
        # A part of a checkpoint, such as a vision tower without its classifier: a damaged config.json would leave out
        # further layers of its own kind alone.
        own = {_DIGITS.sub("#", key) for key in model.state_dict()}
        surplus = [key for key in surplus if _DIGITS.sub("#", key) in own]
    if missing or surplus:
        raise _unlike(name, missing, surplus)
    return model


def _unlike(name: str, missing: list[str], surplus: list[str]) -> CheckpointError:
    if missing:
        return CheckpointError(
            f"{name} lacks {len(missing)} of the model's weights, {missing[0]} first: it is incomplete, or {_OTHER}"
        )
    return CheckpointError(
        f"{name} has {len(surplus)} weights that the model of its config.json does not read, {surplus[0]} first: it is "
        f"damaged, or {_OTHER}"
    )


_OTHER = "of another model than its config.json says; download it again"


_DIGITS = re.compile(r"\d+")


def language_model(
    source: WeightsSource, vocabulary: int, dtype: torch.dtype, model_class: Any = None
) -> PreTrainedModel:
    """In `dtype` if read from safetensors (7 B weights are 27 GB in float32), else in float32. `model_class`: of a
    model read from GGUF; None: transformers' own."""
    if source.config is not None:
        with explain_impossible_values("model.language_model.config"):
            return AutoModelForCausalLM.from_config(configuration(source, "language_model", vocab_size=vocabulary))
    read_in = dtype if source.gguf_file is None else torch.float32
    loaded = _loaded(AutoModelForCausalLM, source, "language_model", dtype=read_in)
    if source.gguf_file is None:
        return loaded
    # transformers can neither cast nor save a model read from GGUF, so the weights move to a new model.
    config = AutoConfig.for_model(**{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"})
    fresh = AutoModelForCausalLM.from_config(config) if model_class is None else model_class._from_config(config)
    fresh.load_state_dict(loaded.state_dict())
    return fresh


def vision_configuration(source: WeightsSource) -> PretrainedConfig:
    config = source_configuration(source, "vision")
    return config if source.config is not None else getattr(config, "vision_config", config)


def vision_tower(source: WeightsSource) -> PreTrainedModel:
    """Float32."""
    if source.config is not None:
        with explain_missing_extras("vision"), explain_impossible_values("model.vision.config"):
            return AutoModel.from_config(configuration(source, "vision"))
    unused = ("pooler.",)  # which a classifier of pictures does not have
    model = _loaded(AutoModel, source, "vision", unused=unused, dtype=torch.float32)
    return getattr(model, "vision_model", model)  # CLIP and SigLIP include a text tower


def configuration(source: WeightsSource, part: str, **overrides: Any) -> PretrainedConfig:
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
    except _BAD_VALUES as error:
        raise CheckpointError(f"{where}: {reason_of(error).removeprefix('TypeError: ')}") from None


@contextmanager
def explain_impossible_values(where: str) -> Iterator[None]:
    """Raises CheckpointError, one line that names `where`, for values with which no model can be built, such as no
    heads or an activation that does not exist."""
    try:
        yield
    except _BAD_VALUES as error:
        raise CheckpointError(f"{where}: no model can have these values ({error!r}); correct them") from None


def _check_keys(content: dict, defaults: PretrainedConfig, where: str) -> None:
    known = {*defaults.to_dict(), *defaults.attribute_map, *_LEGACY_KEYS}
    for key in content.keys() - known:
        raise CheckpointError(
            f"{where}: {defaults.model_type} has no key {key!r}; did you mean {nearest(str(key), known)!r}?"
        )
    for name in defaults.sub_configs:
        if isinstance(content.get(name), dict) and isinstance(getattr(defaults, name, None), PretrainedConfig):
            _check_keys(content[name], getattr(defaults, name), f"{where}.{name}")


_LEGACY_KEYS = {"rope_theta"}
"""Keys that transformers reads but does not list."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The most similar known word."""
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0)[0]


def hub_options(source: WeightsSource) -> dict[str, Any]:
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
    """Raises CheckpointError where a library of an extra is absent, or too old for the part `key`."""
    try:
        yield
    except ImportError as error:
        if (problem := _problem_of_extra(error)) is None:
            raise
        raise CheckpointError(f"model.{key} {problem}") from None


def _problem_of_extra(error: Exception) -> str | None:
    """What transformers misses of a library of an extra; None where the error is another one."""
    library = next((name for name in _EXTRAS if name in str(error)), None) if isinstance(error, ImportError) else None
    if library is None:
        return None
    if find_spec(library) is None:
        return f"needs {library}; {install_line(_EXTRAS[library])}"
    return f"cannot be loaded: {reason_of(error)}"


@contextmanager
def explain_load_errors(source: WeightsSource, key: str, weights: bool = True) -> Iterator[None]:
    """Raises CheckpointError in place of transformers' errors, for a missing folder, a damaged file, an unknown or
    gated name, a lost connection or a folder without safetensors.

    A lost connection fails at the first request, and the files of a folder are checked before the block; its weights
    only with `weights`, which is false where some of them may be missing.
    """
    name = _name(source, key)
    refuse_missing_folder(source.location, name)
    if (folder := Path(source.location)).is_dir():
        _check(source, folder, name, weights)
    settle_connection(source)
    try:
        with explain_missing_extras(key):
            yield
    except (OSError, SafetensorError) as error:
        if not folder.is_dir() and (cached := cached_path(source.location, CONFIG, source.revision)) is not None:
            _check(source, cached.parent, name, weights)
        reason = reason_of(error)
        raise CheckpointError(f"{name} cannot be loaded: {reason}{_advice(source, key, reason)}") from error


def _name(source: WeightsSource, key: str) -> str:
    return f"model.{key}.checkpoint {source.checkpoint!r}"


def _check(source: WeightsSource, folder: Path, name: str, weights: bool) -> None:
    """Raises CheckpointError for a damaged file of the source in `folder`."""
    try:
        if source.gguf_file is None:
            if not (folder / CONFIG).is_file():
                hint = "; a run is named as model.base" if weights else ""
                raise CheckpointError(f"{CONFIG} is missing, so it is no whole model{hint}")
            check_folder(folder, weights)
        elif (folder / source.gguf_file).exists():
            check_file(folder / source.gguf_file)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from None


def _advice(source: WeightsSource, key: str, reason: str) -> str:
    """What to do about a checkpoint that cannot be loaded and has no damaged file."""
    folder = Path(source.location)
    if not folder.is_dir() or "gated" in reason:
        absent = "" if folder.is_dir() else f"No folder {source.location} exists here. "
        return (
            f"\n{absent}Give the path of a folder that holds it, or a name on huggingface.co. A gated one, such as "
            "Llama 2, also needs its licence accepted on its page there and `hf auth login` here."
        )
    if source.gguf_file is None and any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors")):
        return (
            " Weights are read from safetensors only; transformers converts .bin files: "
            f"AutoModel{_WITH_HEAD.get(key, '')}.from_pretrained({source.checkpoint!r}).save_pretrained(FOLDER)"
        )
    return "\nDownload or copy the whole checkpoint again."


_WITH_HEAD = {"language_model": "ForCausalLM", "encoder_decoder": "ForSeq2SeqLM", "vlm": "ForImageTextToText"}
"""Recipe key → the end of the name of transformers' auto class whose models have a head; AutoModel leaves it out."""
