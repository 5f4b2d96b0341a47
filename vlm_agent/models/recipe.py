"""What a recipe says about the model."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_serializer, model_validator

Training = Literal["frozen", "lora", "full"]
Quantisation = Literal["nf4", "int8"]


class Section(BaseModel):
    """A part of a recipe: immutable, and refusing keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Section):
    """Where a sub-model comes from: a `checkpoint` (folder or hub name; `gguf_file` inside it for GGUF) or, with
    random weights, a `config` (transformers' keys, `model_type` among them)."""

    checkpoint: str | None = None
    gguf_file: str | None = None
    config: dict | None = None

    @model_validator(mode="after")
    def _exactly_one(self):
        if (self.checkpoint is None) == (self.config is None):
            raise ValueError("give either checkpoint or config")
        if self.gguf_file is not None and self.checkpoint is None:
            raise ValueError("gguf_file is a file inside checkpoint; give the folder there")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("config needs a model_type, such as llama or vit")
        return self


class TrainedParts(Section):
    """How each part is trained. The defaults are the paper's (section 3.1.1, 4): projection and LoRA only."""

    vision: Training = "frozen"
    projector: Training = "full"
    embeddings: Training = "frozen"
    language_model: Training = "lora"
    norm: Training = "frozen"
    head: Training = "frozen"


class Lora(Section):
    """Low-rank adapters on every linear layer of the parts that say `lora`. The paper's figures are lost; these are
    ours.

    `dora`: a trained magnitude beside each adapted row (DoRA, Liu et al., 2024); a step takes longer, and longer still
    with dropout. `rslora`: scaled by alpha / √rank in place of alpha / rank (Kalajdzievski, 2023), for high ranks.
    """

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    dora: bool = False
    rslora: bool = False


class WordTokenizer(Section):
    """A tokenizer made from the training shards, for a language model that brings none."""

    vocabulary: PositiveInt = 4096


_WITH_ALL = {"train", "lora", "dtype", "quantisation"}
_KEYS_WITH = {
    "base": _WITH_ALL | {"base"},
    "vlm": _WITH_ALL | {"vlm", "min_pixels", "max_pixels", "word_tokenizer"},
    "language_model": _WITH_ALL
    | {
        *("language_model", "vision", "word_tokenizer", "screen_size", "visual_grid", "image_mean", "image_std"),
        *("visual_merge", "visual_norm", "visual_positions", "element_loss"),
    },
}
"""The keys that a model of each origin is described by."""


class ModelRecipe(Section):
    """What is trained; one of three.

    `vlm`: a whole vision-language model, whose family its configuration's `model_type` tells. `min_pixels` and
    `max_pixels` bound the screens that a Qwen-VL sees.
    `language_model` and `vision`: a Llama+ViT, composed.
    `base`: goes on from a finished run, or from an embedded model by its name (models/embedded.py): its weights,
    tokenizer and screen format. Excludes the keys that would describe another model.
    """

    base: str | None = None
    vlm: Source | None = None
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    language_model: Source | None = None
    vision: Source | None = None
    word_tokenizer: WordTokenizer | None = None
    screen_size: tuple[PositiveInt, PositiveInt] = (896, 448)
    visual_grid: tuple[PositiveInt, PositiveInt] = (16, 8)
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    visual_merge: tuple[PositiveInt, PositiveInt] = (1, 1)
    visual_norm: float | None = None
    visual_positions: bool = False
    element_loss: float = 0.0
    train: TrainedParts = TrainedParts()
    lora: Lora = Lora()
    quantisation: Quantisation | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _whole_models_have_a_projector(cls, content):
        """Theirs is trained already, so it stays frozen unless told otherwise."""
        if isinstance(content, dict) and content.get("vlm") is not None:
            train = content.get("train", {})
            if isinstance(train, dict):
                content = content | {"train": {"projector": "frozen"} | train}
        return content

    @model_validator(mode="after")
    def _one_origin(self):
        given = self.model_fields_set
        origins = [name for name in ("base", "vlm", "language_model") if getattr(self, name) is not None]
        if len(origins) != 1 or (self.language_model is None) != (self.vision is None):
            raise ValueError("give one of base, vlm, or both language_model and vision")
        excluded = given - _KEYS_WITH[origins[0]]
        if self.base is not None and excluded:
            raise ValueError(f"base brings the whole model; remove {', '.join(sorted(excluded))}")
        if excluded:
            raise ValueError(f"remove {', '.join(sorted(excluded))}; with {origins[0]} it says nothing")
        if self.language_model is not None and self.train.projector != "full":
            raise ValueError("a new projector is random; train.projector must be full unless base brings one")
        source = self.vlm or self.language_model
        if source is not None and (self.word_tokenizer is None) != (source.config is None):
            raise ValueError(
                f"{origins[0]}.config has random weights and needs word_tokenizer; {origins[0]}.checkpoint brings its "
                "own tokenizer and excludes it"
            )
        if self.min_pixels is not None and self.max_pixels is not None and self.min_pixels > self.max_pixels:
            raise ValueError("min_pixels is more than max_pixels")
        return self

    @model_validator(mode="after")
    def _quantised_is_adapted(self):
        if self.quantisation is not None and self.train.language_model != "lora":
            raise ValueError("quantisation needs train.language_model: lora; set it, or remove quantisation")
        return self

    @property
    def origin(self) -> str:
        """Which of `base`, `vlm` and `language_model` (with `vision`) is given."""
        return next(name for name in _KEYS_WITH if getattr(self, name) is not None)

    @model_serializer(mode="wrap")
    def _as_given(self, serialise) -> dict:
        """Without the keys that this origin excludes, so that what is written can be read."""
        content = serialise(self)
        return {key: content[key] for key in content if key in _KEYS_WITH[self.origin]}

    @property
    def starts_random(self) -> bool:
        """Whether any sub-model begins from random weights, which no checkpoint could give back."""
        sources = (self.vlm, self.language_model, self.vision)
        return any(source is not None and source.config is not None for source in sources)
