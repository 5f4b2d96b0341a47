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

    `keys`: keys of `data` for this kind alone; a saved recipe of another kind does not have them. `controls`: whether
    `data.control` may be set. `no_packing`: the error for `training.batch_tokens` and `data.max_tokens`; None where
    they are allowed.
    """

    keys: tuple[str, ...] = ()
    controls: bool = True
    no_packing: str | None = None


SENTENCES: dict[str, SentenceOptions] = {
    "trajectory": SentenceOptions(),
    "elements": SentenceOptions(
        controls=False,
        no_packing="the lengths of sentences of elements are unknown in advance; give training.batch_size in place of "
        "training.batch_tokens and data.max_tokens",
    ),
    "chain_of_actions": SentenceOptions(
        keys=("history", "future", "elements", "past_screens", "max_source_tokens", "max_target_tokens", "features"),
        no_packing="sentences: chain_of_actions has training.batch_size steps in a row and the limits "
        "data.max_source_tokens and data.max_target_tokens; remove training.batch_tokens and data.max_tokens",
    ),
}
"""The kinds of sentences by their name in `data.sentences`; `training/data/sentence_kinds/` builds them."""


class DataRecipe(Section):
    """`shards`: a converted folder. `drawn`: screens drawn during training, which exclude every key but `workers`.

    `sentences`: a `trajectory` is an episode in one sentence; `elements` are `items` questions about single screens;
    `chain_of_actions` makes each step a source and a target (Auto-UI).
    `control`: an ablation for all of training. `grey_screens` hides the pixels. `no_history` makes every step the first
    of its episode, and a row of trajectories holds as many steps as `batch_size` episodes have on average. The score of
    such an agent is what can be reached without that input.
    `max_tokens`: the longest sentence; a longer trajectory is split into windows. None: `training.batch_tokens`, or no
    limit without it. `mixture`: the fraction of a subset's episodes to use, 1 for a subset without an entry. `limit`:
    at most this many episodes. `workers`: processes that prepare screens; 0: the training process prepares them.

    With `chain_of_actions` only: `history`, `future`: the number of earlier actions in a source and of action types in
    a plan, the current one included; 0 leaves the part out. `elements`: whether a source describes the screen's
    elements. `past_screens`: earlier screens whose features the model reads. `max_source_tokens`, `max_target_tokens`:
    limits, end marks included. A source that is too long loses its oldest actions, then the end of the description; a
    step whose target is too long is not learned. `features`: the output of `vlm-agent features` for these shards.
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
    history: NonNegativeInt = 8
    future: NonNegativeInt = 4
    elements: bool = False
    past_screens: NonNegativeInt = 0
    max_source_tokens: PositiveInt = 512
    max_target_tokens: PositiveInt = 128
    features: str | None = None

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
        if excluded := self.model_fields_set & _keys_of_others(self.sentences):
            names = " or ".join(name for name, options in SENTENCES.items() if excluded & set(options.keys))
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has an effect only with sentences: {names}")
        if self.drawn is not None and (excluded := self.model_fields_set - {"shards", *_WITH_DRAWN}):
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has no effect with drawn")
        return self

    @model_serializer(mode="wrap")
    def _allowed_keys(self, serialise: SerializerFunctionWrapHandler) -> dict:
        """Omits the keys that `drawn` or the kind of sentences excludes, so that a saved recipe is valid."""
        content = serialise(self)
        if self.drawn is not None:
            return {key: content[key] for key in content if key in _WITH_DRAWN}
        excluded = _keys_of_others(self.sentences)
        return {key: content[key] for key in content if key not in excluded}


def _keys_of_others(sentences: str) -> set[str]:
    """The keys that belong to other kinds of sentences."""
    return {key for options in SENTENCES.values() for key in options.keys} - set(SENTENCES[sentences].keys)
