"""The `model` section of a recipe: where the weights come from, and which of them are trained."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, SerializerFunctionWrapHandler, model_serializer, model_validator

from vlm_agent.settings import Section, either

Training = Literal["frozen", "lora", "full"]
Quantisation = Literal["nf4", "int8"]
FeatureForm = Literal["pooled", "patches"]
_Positive = Annotated[float, Field(gt=0)]


class WeightsSource(Section):
    """The origin of a sub-model.

    `checkpoint`: a folder or a name on the hub; with `gguf_file`, a GGUF file inside it. `revision`: a branch, tag or
    commit of a name on the hub. `published_as`: the name on the hub of a `checkpoint` that is a folder, for what is
    uploaded (model card, adapter); nothing is read from there. `config`: keys of a transformers configuration,
    including `model_type`, for random weights.
    """

    REPLACES = either("checkpoint", "config")

    checkpoint: str | None = None
    revision: str | None = None
    published_as: Annotated[str, Field(pattern=r"^[A-Za-z0-9_](?:[\w.-]*/[A-Za-z0-9_])?[\w.-]*$")] | None = None
    gguf_file: str | None = None
    config: dict | None = None

    @property
    def location(self) -> str:
        """`checkpoint`, for a source known to have one."""
        assert self.checkpoint is not None  # noqa: S101 (the validator: either checkpoint or config)
        return self.checkpoint

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.checkpoint is None) == (self.config is None):
            raise ValueError("set checkpoint or config, not both")
        if self.gguf_file is not None and self.checkpoint is None:
            raise ValueError("gguf_file is a file inside checkpoint; set checkpoint to its folder")
        if self.revision is not None and self.checkpoint is None:
            raise ValueError("revision is a branch, tag or commit of checkpoint; set checkpoint, or remove revision")
        if self.published_as is not None and self.checkpoint is None:
            raise ValueError("published_as is the name of checkpoint on the hub; set checkpoint, or remove it")
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            raise ValueError("config needs a model_type, such as llama or vit")
        return self


class TrainedParts(Section):
    """How each part is trained. Defaults as in the paper (sections 3.1.1 and 4): the projection, and LoRA; also with a
    `base`, whatever it is."""

    vision: Training = "frozen"
    projector: Training = "full"
    embeddings: Training = "frozen"
    language_model: Training = "lora"
    norm: Training = "frozen"
    head: Training = "frozen"

    @property
    def has_adapter(self) -> bool:
        """Whether a part trains by LoRA, so that the run holds an adapter and not a whole model."""
        return "lora" in self.model_dump().values()


class Lora(Section):
    """Low-rank adapters on every linear layer of the parts set to `lora`. The paper's values are not known; the
    defaults are ours.

    `dora`: also trains a magnitude per adapted row (DoRA, Liu et al., 2024); steps are slower, more so with dropout.
    `rslora`: scales by alpha / √rank instead of alpha / rank (Kalajdzievski, 2023), for high ranks.
    """

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    dora: bool = False
    rslora: bool = False


class WordTokenizer(Section):
    """A tokenizer built from the training data, for a language model with random weights.

    `leading_spaces`: a word and the space before it are one token.
    """

    vocabulary: PositiveInt = 4096
    leading_spaces: bool = False


class FeatureSettings(Section):
    """Which screen features a model reads: numbers of a frozen vision encoder, computed once before training.

    `checkpoint`: where the extractor's weights come from; None: the extractor's own default. `form`: one vector a
    screen (`pooled`), or one for each patch of it (`patches`).
    """

    extractor: str
    checkpoint: str | None = None
    form: FeatureForm = "pooled"

    @classmethod
    def of_model(cls, features: Mapping[str, Any]) -> Self:
        """From `features` of a model's configuration, which has further keys."""
        return cls(**{key: features[key] for key in cls.model_fields if key in features})


SOURCES = ("vlm", "encoder_decoder", "language_model", "vision")
"""The keys of a recipe whose value is a `WeightsSource`."""

PLACES = (*(f"{key}.{part}" for key in SOURCES for part in ("checkpoint", "revision")), "base")
"""The keys below a recipe's `model` that say where a base lies; options are `--model.KEY`."""

_ORIGINS = ("base", "vlm", "encoder_decoder", "language_model")
"""The keys that say where the weights come from; one of them is set."""

_WITH_ALL = {"train", "lora", "dtype"}
_WITH_TEXT = _WITH_ALL | {"quantisation", "language_model", "word_tokenizer"}
_KEYS_WITH = {
    "base": _WITH_ALL | {"base", "quantisation"},
    "vlm": _WITH_ALL | {"vlm", "min_pixels", "max_pixels", "word_tokenizer", "quantisation"},
    "encoder_decoder": _WITH_ALL | {"encoder_decoder", "features", "word_tokenizer", "word_embeddings"},
    "language_model": _WITH_TEXT,
    "vision": _WITH_TEXT
    | {"vision", "screen_size", "visual_grid", "image_mean", "image_std"}
    | {"visual_merge", "visual_norm", "visual_positions", "element_loss"},
}
"""Origin, or `vision` for a language_model with it → the keys that are allowed."""

_TRAINED_BY_DEFAULT = {
    "vlm": {"projector": "frozen"},
    "encoder_decoder": dict.fromkeys(("projector", "embeddings", "language_model", "norm", "head"), "full"),
    "language_model": {"projector": "frozen"},
    "vision": {},
}
"""The same keys → defaults of `train` that differ. The projector of a `vlm` is trained already, a text model has none;
Auto-UI trains every weight (section 4.4 of its paper)."""


def _excluded_by(origin: str) -> set[str]:
    """The keys that no recipe of this origin may have."""
    return set().union(*_KEYS_WITH.values()) - _KEYS_WITH["vision" if origin == "language_model" else origin]


class ModelRecipe(Section):
    """The model, from one of four origins.

    `vlm`: a vision-language model; the `model_type` of its configuration selects the family. `min_pixels` and
    `max_pixels` bound the size of screens for Qwen-VL.
    `encoder_decoder`: a T5, from a checkpoint (T5, FLAN, Alpaca, or one that convert-checkpoint wrote) or a
    configuration; with `features`, the screen features that the model reads (Auto-UI). `word_embeddings`: an embedded
    model or a run, whose embeddings start those of the words that both vocabularies contain, and of coordinates.
    `language_model` and `vision`: a Llama+ViT composed of two checkpoints or configurations. `language_model` alone: a
    text model, which reads the elements of a screen as HTML in place of its pixels.
    `base`: a finished run, or an embedded model by name (models/run_layout.py), with its weights, tokenizer and screen
    format. Keys that describe the model are not allowed with it.
    """

    REPLACES = {origin: _excluded_by(origin) for origin in _ORIGINS}  # noqa: RUF012

    base: str | None = None
    vlm: WeightsSource | None = None
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    encoder_decoder: WeightsSource | None = None
    features: FeatureSettings | None = None
    word_embeddings: str | None = None
    language_model: WeightsSource | None = None
    vision: WeightsSource | None = None
    word_tokenizer: WordTokenizer | None = None
    screen_size: tuple[PositiveInt, PositiveInt] = (896, 448)
    visual_grid: tuple[PositiveInt, PositiveInt] = (16, 8)
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[_Positive, _Positive, _Positive] = (0.5, 0.5, 0.5)
    visual_merge: tuple[PositiveInt, PositiveInt] = (1, 1)
    visual_norm: _Positive | None = None
    visual_positions: bool = False
    element_loss: Annotated[float, Field(ge=0)] = 0.0
    train: TrainedParts = TrainedParts()
    lora: Lora = Lora()
    quantisation: Quantisation | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _default_of_train(cls, content: Any) -> Any:
        """The defaults of `train` depend on the origin."""
        if isinstance(content, dict) and isinstance(train := content.get("train", {}), dict):
            origins = [kind for kind in reversed(_TRAINED_BY_DEFAULT) if content.get(kind) is not None]
            return content | {"train": _TRAINED_BY_DEFAULT[origins[0]] | train} if origins else content
        return content

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [name for name in _ORIGINS if getattr(self, name) is not None]
        if len(origins) != 1 or (self.vision is not None and self.language_model is None):
            raise ValueError(
                "set one of base, vlm, encoder_decoder or language_model; with vision, language_model sees pixels"
            )
        if wrong := [key for key, one in self.sources.items() if one.gguf_file and key != "language_model"]:
            raise ValueError(f"{wrong[0]}.gguf_file: only a language_model is read from GGUF; remove it")
        excluded = self.model_fields_set - self._allowed
        if self.base is not None and excluded:
            raise ValueError(f"base includes the whole model; remove {', '.join(sorted(excluded))}")
        if excluded:
            origin = f"{origins[0]} without vision" if self.is_text else origins[0]
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has no effect with {origin}")
        if self.is_text and {self.train.vision, self.train.projector} != {"frozen"}:
            raise ValueError("a language_model without vision has no vision and no projector to train; remove them")
        if self.vision is not None and self.train.projector != "full":
            raise ValueError("a new projector is random; train.projector must be full unless base includes one")
        source = getattr(self, origins[0])
        if isinstance(source, WeightsSource) and (self.word_tokenizer is None) != (source.config is None):
            raise ValueError(
                f"{origins[0]}.config has random weights and needs word_tokenizer; {origins[0]}.checkpoint includes "
                "its own tokenizer and excludes word_tokenizer"
            )
        if self.min_pixels is not None and self.max_pixels is not None and self.min_pixels > self.max_pixels:
            raise ValueError("min_pixels is greater than max_pixels")
        if self.quantisation is not None and self.train.language_model != "lora":
            raise ValueError("quantisation needs train.language_model: lora; set it, or remove quantisation")
        return self

    @model_validator(mode="after")
    def _encoder_decoder_reads_features(self) -> Self:
        if self.encoder_decoder is None:
            return self
        if self.features is None:
            raise ValueError("encoder_decoder reads screen features; set features")
        if self.train.vision != "frozen":
            raise ValueError("train.vision must be frozen with encoder_decoder, which has no vision tower")
        if self.word_embeddings is not None and self.word_tokenizer is None:
            raise ValueError("word_embeddings is for encoder_decoder.config; a checkpoint has embeddings: remove it")
        return self

    @property
    def origin(self) -> str:
        """Which of `base`, `vlm`, `encoder_decoder` and `language_model` (with or without `vision`) is set."""
        return next(name for name in _ORIGINS if getattr(self, name) is not None)

    @property
    def is_text(self) -> bool:
        """Whether the recipe describes a text model; False for a `base`, which may be one."""
        return self.language_model is not None and self.vision is None

    @property
    def _allowed(self) -> set[str]:
        return _KEYS_WITH[self.origin if self.vision is None else "vision"]

    @model_serializer(mode="wrap")
    def _allowed_keys(self, serialise: SerializerFunctionWrapHandler) -> dict:
        """Omits the keys that the origin excludes, so that a saved recipe is valid."""
        content = serialise(self)
        return {key: content[key] for key in content if key in self._allowed}

    @property
    def starts_random(self) -> bool:
        """Whether any sub-model starts from random weights, which cannot be loaded from a checkpoint again."""
        return any(source.config is not None for source in self.sources.values())

    @property
    def published(self) -> dict[str, str]:
        """Recipe key → `published_as`, of the sources that have one."""
        return {key: source.published_as for key, source in self.sources.items() if source.published_as is not None}

    @property
    def published_base(self) -> str | None:
        """`published_as` of the whole model under an adapter; None without one, and for a model of several sources."""
        return next(iter(self.published.values()), None) if len(self.sources) == 1 else None

    def with_published(self, names: Mapping[str, str]) -> Self:
        """The recipe with these `published_as`, by recipe key. Raises KeyError for a key without a checkpoint."""
        sources = {key: self.sources[key].model_copy(update={"published_as": name}) for key, name in names.items()}
        return self.model_copy(update=sources)

    @property
    def sources(self) -> dict[str, WeightsSource]:
        """Recipe key → source, of those that are set."""
        return {key: source for key in SOURCES if (source := getattr(self, key)) is not None}
