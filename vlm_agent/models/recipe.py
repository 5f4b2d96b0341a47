"""What a recipe says about the model."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_serializer, model_validator

Training = Literal["frozen", "lora", "full"]


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
    ours."""

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    dropout: float = 0.05


class WordTokenizer(Section):
    """A tokenizer made from the training shards, for a language model that brings none."""

    vocabulary: PositiveInt = 4096


_WITH_BASE = {"base", "train", "lora", "dtype"}


class ModelRecipe(Section):
    """Llama+ViT. `base` continues from a finished run (its weights, tokenizer and screen format) and excludes the keys
    that would describe another model."""

    base: str | None = None
    language_model: Source | None = None
    vision: Source | None = None
    word_tokenizer: WordTokenizer | None = None
    screen_size: tuple[PositiveInt, PositiveInt] = (896, 448)
    visual_grid: tuple[PositiveInt, PositiveInt] = (16, 8)
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    visual_norm: float | None = None
    visual_positions: bool = False
    element_loss: float = 0.0
    train: TrainedParts = TrainedParts()
    lora: Lora = Lora()
    dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _one_origin(self):
        described = self.model_fields_set - _WITH_BASE
        if self.base is not None and described:
            raise ValueError(f"base brings the whole model; remove {', '.join(sorted(described))}")
        if self.base is None and (self.language_model is None or self.vision is None):
            raise ValueError("give base, or both language_model and vision")
        if self.base is None and self.train.projector != "full":
            raise ValueError("a new projector is random; train.projector must be full unless base brings one")
        if self.base is None and (self.word_tokenizer is None) != (self.language_model.config is None):
            raise ValueError(
                "language_model.config has random weights and needs word_tokenizer; language_model.checkpoint brings "
                "its own tokenizer and excludes it"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, serialise) -> dict:
        """With a base, without the keys it excludes, so that what is written can be read."""
        content = serialise(self)
        return content if self.base is None else {key: content[key] for key in content if key in _WITH_BASE}

    @property
    def starts_random(self) -> bool:
        """Whether any sub-model begins from random weights, which no checkpoint could give back."""
        return self.base is None and (self.language_model.config is not None or self.vision.config is not None)
