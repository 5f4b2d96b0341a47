"""`data` of a recipe: what a run reads."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from vlm_agent.recipe.drawn import DrawnRecipe
from vlm_agent.settings import Section

_WITH_DRAWN = ("drawn", "workers")


@dataclass(frozen=True)
class SentenceOptions:
    """What a recipe may set for one kind of sentences.

    `controls`: whether `data.control` may be set. `unknown_lengths`: the error for `training.batch_tokens` and
    `data.max_tokens`; None where they are allowed.
    """

    controls: bool = True
    unknown_lengths: str | None = None


SENTENCES: dict[str, SentenceOptions] = {
    "trajectory": SentenceOptions(),
    "elements": SentenceOptions(
        controls=False,
        unknown_lengths="the lengths of sentences of elements are unknown in advance; give training.batch_size in "
        "place of training.batch_tokens and data.max_tokens",
    ),
}
"""The kinds of sentences by their name in `data.sentences`; `training/data/sentence_kinds/` builds them."""


class DataRecipe(Section):
    """`shards`: a converted folder. `drawn`: screens drawn during training, which exclude every key but `workers`.

    `sentences`: a `trajectory` is an episode in one sentence; `elements` are `items` questions about single screens.
    `control`: an ablation for all of training. `grey_screens` hides the pixels. `no_history` makes every step the first
    of its episode, and a row holds as many steps as `batch_size` episodes have on average. The score of such an agent
    is what can be reached without that input.
    `max_tokens`: the longest sentence; a longer trajectory is split into windows. None: `training.batch_tokens`, or no
    limit without it. `mixture`: the fraction of a subset's episodes to use, 1 for a subset without an entry. `limit`:
    at most this many episodes. `workers`: processes that prepare screens; 0: the training process prepares them.
    """

    shards: str | None = None
    drawn: DrawnRecipe | None = None
    split: str = "train"
    sentences: str = "trajectory"
    items: PositiveInt = 12
    control: Literal["grey_screens", "no_history"] | None = None
    max_tokens: PositiveInt | None = None
    mixture: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    limit: PositiveInt | None = None
    workers: NonNegativeInt = 0

    @field_validator("sentences")
    @classmethod
    def _known_sentences(cls, name: str) -> str:
        if name not in SENTENCES:
            raise ValueError(f"{name!r} is unknown; choose one of {', '.join(sorted(SENTENCES))}")
        return name

    @property
    def sentence_options(self) -> SentenceOptions:
        return SENTENCES[self.sentences]

    @model_validator(mode="after")
    def _one_source(self) -> "DataRecipe":
        if (self.shards is None) == (self.drawn is None):
            raise ValueError("set either shards or drawn")
        if self.control is not None and not self.sentence_options.controls:
            allowed = " or ".join(name for name, options in SENTENCES.items() if options.controls)
            raise ValueError(f"control needs sentences: {allowed}")
        if self.drawn is not None and (excluded := self.model_fields_set - {"shards", *_WITH_DRAWN}):
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has no effect with drawn")
        return self

    @model_serializer(mode="wrap")
    def _allowed_keys(self, serialise: SerializerFunctionWrapHandler) -> dict:
        """Omits the keys that `drawn` excludes, so that a saved recipe is valid."""
        content = serialise(self)
        return content if self.drawn is None else {key: content[key] for key in content if key in _WITH_DRAWN}
