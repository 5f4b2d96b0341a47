"""The protocol of model families and their registry by `model_type`.

A family is a folder with a subclass of `ModelFamily` and a line in `FAMILIES`. It is imported at its first use.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from peft import PeftModel
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from vlm_agent.action_languages import ActionLanguage, LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import check_folder
from vlm_agent.models.cost import CostModel
from vlm_agent.models.decoding import Decoder
from vlm_agent.models.pretrained import (
    complete_model,
    explain_load_errors,
    hub_options,
    nearest,
    source_configuration,
    whole_model,
)
from vlm_agent.models.weights.adapters import parts_of, without_adapter
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import ModelRecipe, WeightsSource
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.notes import NoteLines
from vlm_agent.sentences.templates import ChatTemplate
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import past_of
from vlm_agent.settings import Registry


@dataclass(frozen=True)
class Processor:
    """Turns episodes into batches of one family. Holds no weights and pickles, for the workers of data loaders.

    `screens`: the sizes of prepared screens, and the visual tokens of each. `template`: the text around goals, screens
    and actions. `collate`: sentences to a batch, which holds the keyword arguments of the model's forward and the
    columns `loss.NOT_FOR_MODELS`. Its tensors, also those in dictionaries, move to the device; NumPy arrays and numbers
    stay on the host, where they decide shapes without waiting for the GPU. `label_grid`: (rows, columns) of a screen's
    element labels, None for a model without an element loss.
    `sentence_kinds`: the values of `data.sentences` that the family can collate. `screens_as_html`: a screen is its
    elements as text, and the model reads no pixels.
    """

    screens: ScreenRule
    template: ChatTemplate
    collate: Callable[[list[Sentence]], dict]
    label_grid: tuple[int, int] | None = None
    sentence_kinds: tuple[str, ...] = ("trajectory", "elements")
    screens_as_html: bool = False

    def sentences(
        self,
        tokenizer: PreTrainedTokenizerBase,
        language: ActionLanguage,
        data: DataRecipe = DataRecipe(),  # noqa: B008 (frozen)
    ) -> TrajectorySentences:
        """Sentences with the notes and the past that `data` of a recipe asks for.

        Raises CheckpointError for a family that does not read trajectories.
        """
        if "trajectory" not in self.sentence_kinds:
            raise CheckpointError(
                f"this model reads sentences of kind {' or '.join(self.sentence_kinds)}; trajectories are needed here"
            )
        notes, past = NoteLines.of(data), past_of(data)
        return TrajectorySentences(
            tokenizer, language, self.screens, self.template, notes=notes, as_html=self.screens_as_html, past=past
        )


class ModelFamily(Protocol):
    """The interface between one kind of model and the rest of the package.

    `model`: the class of the whole model. Its attribute `parts` is the module path of each part that a recipe freezes,
    adapts or trains in full (`recipe.model.TrainedParts`); its forward returns a `SupervisedOutput`. `special_tokens`:
    the tokens of the template that a word tokenizer must contain.
    """

    model: type[PreTrainedModel]
    special_tokens: tuple[str, ...] = ()

    @property
    def config(self) -> type[PretrainedConfig]:
        return cast("type[PretrainedConfig]", self.model.config_class)

    @property
    def parts(self) -> dict[str, str]:
        return parts_of(self.model)

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        """The configuration of the recipe's model, without reading weights. Raises CheckpointError if it cannot be
        loaded or does not fit the recipe."""
        return source_configuration(source_of(recipe), vocab_size=len(tokenizer))

    def build(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """The model of the recipe, in its dtype. Random weights come from torch's global generator.

        Raises CheckpointError if a checkpoint cannot be loaded.
        """
        return self.prepare(whole_model(self.model, source_of(recipe), self.configure(recipe, tokenizer), recipe.dtype))

    def initialise(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        """Initialises a model with random weights and a word tokenizer; by default, as transformers did."""
        return model

    def notes(self, model: PreTrainedModel) -> Sequence[str]:
        """What a user should know about the model that `build` returned; by default nothing."""
        return ()

    def load(self, folder: Path, dtype: torch.dtype | None = None) -> PreTrainedModel:
        """Loads a whole model from a folder written by `save_pretrained`, in `dtype`; None: that of its configuration,
        to which weights that were saved in a higher precision are rounded."""
        options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
        return self.prepare(complete_model(self.model, folder, str(folder), **options))

    def save_for_serving(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        """Writes what servers and `AutoProcessor` read beside the weights of a model or of its adapter; by default
        nothing, because other programs do not know the model."""
        return

    def prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        """Sets what weights do not determine, such as the attention implementation, in place."""
        return model

    def processor(self, config: PretrainedConfig) -> Processor: ...

    def decoder(self, model: PreTrainedModel) -> Decoder:
        """The decoder of the model, whose attention it sets to one that accepts masks; packed rows need another."""

    def cost(self, config: PretrainedConfig) -> CostModel:
        """Raises UnknownCostError for a model whose cost cannot be computed."""


def keys_of_tokenizer(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase, image_token: str) -> dict:
    """Configuration keys of a whole model with random weights that follow from its tokenizer."""
    if recipe.vlm is None or recipe.vlm.config is None:
        return {}
    marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = recipe.vlm.config.get("text_config") or {}
    if not isinstance(text, dict):
        raise CheckpointError(f"model.vlm.config.text_config: {text!r} must be keys and values")
    text = text | {"vocab_size": len(tokenizer)} | marks
    return {"text_config": text, "image_token_id": tokenizer.convert_tokens_to_ids(image_token)}


def write_tokenizer_of_servers(
    tokenizer: PreTrainedTokenizerBase, chat_template: str | None, folder: Path, **marks: Any
) -> None:
    """Writes the tokenizer with a `chat_template`, None: its own, and generation_config.json: greedy decoding with the
    `marks` of a `GenerationConfig`."""
    served = copy(tokenizer)
    if chat_template is not None:
        served.chat_template = chat_template
    served.save_pretrained(folder)
    GenerationConfig(do_sample=False, pad_token_id=tokenizer.pad_token_id, **marks).save_pretrained(folder)


TEXT_FAMILIES = {
    "llama": "vlm_agent.models.text.family:LLAMA",
    "mistral": "vlm_agent.models.text.family:MISTRAL",
    "qwen2": "vlm_agent.models.text.family:QWEN2",
    "qwen3": "vlm_agent.models.text.family:QWEN3",
}
"""Families of language models without vision: `model_type` of a configuration → module:object."""

FAMILIES: Registry[ModelFamily] = Registry(
    "vlm_agent.model_families",
    {
        "auto_ui": "vlm_agent.models.auto_ui.family:AUTO_UI",
        "llama_vit": "vlm_agent.models.llama_vit.family:LLAMA_VIT",
        "qwen2_vl": "vlm_agent.models.qwen_vl.family:QWEN2_VL",
        "qwen2_5_vl": "vlm_agent.models.qwen_vl.family:QWEN2_5_VL",
        "qwen3_vl": "vlm_agent.models.qwen_vl.family:QWEN3_VL",
        "llava": "vlm_agent.models.llava.family:LLAVA",
        **TEXT_FAMILIES,
    },
    instance_of=ModelFamily,
)
"""`model_type` of a configuration → its family. The published Qwen-VL (2023) is converted to a llama_vit."""

FAMILY_OF_ORIGIN = {"language_model": "llama_vit", "encoder_decoder": "auto_ui"}
"""Origin of a recipe → the one family that it describes. A `vlm` is absent: its `model_type` selects the family, as
that of a `language_model` does without `vision`."""


def family(model_type: Any, key: str = "") -> ModelFamily:
    """Raises CheckpointError, which names the recipe's `key`, for a family that is not in the registry."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise CheckpointError(
            f"{key and f'{key}: '}models of type {model_type!r} are not supported; supported are "
            f"{', '.join(FAMILIES)}. The published Qwen-VL of 2023 is converted first: vlm-agent convert-checkpoint"
        )
    return FAMILIES[model_type]


def family_of(config: PretrainedConfig) -> ModelFamily:
    return family(config.model_type)


def family_of_recipe(recipe: ModelRecipe) -> ModelFamily:
    """The family of a recipe without `base`. Raises CheckpointError if its configuration cannot be loaded or belongs to
    no family."""
    if recipe.is_text:
        model_type = source_configuration(cast("WeightsSource", recipe.language_model), "language_model").model_type
        if model_type not in TEXT_FAMILIES:
            raise CheckpointError(
                f"model.language_model: models of type {model_type!r} are not supported as text models; supported are "
                f"{', '.join(TEXT_FAMILIES)}"
            )
        return family(model_type)
    if recipe.origin in FAMILY_OF_ORIGIN:
        return family(FAMILY_OF_ORIGIN[recipe.origin])
    source = source_of(recipe)
    if source.config is None:
        return _with_vision(saved_model_type(source, "vlm"))
    model_type = source.config["model_type"]
    if model_type not in FAMILIES and model_type not in CONFIG_MAPPING:
        raise CheckpointError(
            f"model.vlm.config: model_type {model_type!r} is unknown; did you mean {nearest(model_type, FAMILIES)!r}?"
        )
    return _with_vision(model_type)


def _with_vision(model_type: str | None) -> ModelFamily:
    if model_type in TEXT_FAMILIES:
        raise CheckpointError(
            f"model.vlm: a {model_type!r} is a language model without vision; call it language_model, beside "
            "vision, or alone for a text model"
        )
    return family(model_type, "model.vlm")


def saved_family(folder: Path) -> ModelFamily:
    """The family of a folder written by `save_pretrained`."""
    return family(_saved_model_type(folder))


def processor_of(config: PretrainedConfig) -> Processor:
    return family_of(config).processor(config)


def context_of(config: PretrainedConfig) -> int | None:
    """The context length of a language model: its `max_position_embeddings`, None if the configuration has none (T5 has
    relative positions).

    Longer inputs run without an error, and the model predicts worse.
    """
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def decoder_of(model: PreTrainedModel | PeftModel) -> Decoder:
    """For a model with or without an adapter."""
    base = without_adapter(model)
    return family_of(base.config).decoder(base)


def saved_model_type(source: WeightsSource, key: str) -> str | None:
    """The `model_type` of a checkpoint. `key`: the recipe's key of it. Raises CheckpointError if it cannot be read."""
    with explain_load_errors(source, key):
        return _saved_model_type(source.location, **hub_options(source))


def _saved_model_type(checkpoint: str | Path, **options: str) -> str | None:
    if Path(checkpoint).is_dir() and "gguf_file" not in options:
        check_folder(Path(checkpoint), weights=False)
    content, _ = PretrainedConfig.get_config_dict(checkpoint, **options)
    return content.get("model_type")


def source_of(recipe: ModelRecipe) -> WeightsSource:
    """The source of a whole model."""
    assert recipe.vlm is not None  # noqa: S101 (composed families override the callers)
    return recipe.vlm
