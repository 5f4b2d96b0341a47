"""Each step as a source and a target (`sentences/steps.py`), with stored screen features (Auto-UI)."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PretrainedConfig

from vlm_agent.agents.controls import GREY
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.errors import RecipeError
from vlm_agent.models.cost import CostModel, Workload
from vlm_agent.models.features import load_trained_extractor
from vlm_agent.models.features.store import FeatureStore, extraction_remedy
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import FeatureSettings
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.notes import HeadedNotes, training_notes
from vlm_agent.sentences.steps import PHRASES, StepSentences, TooLongError
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.lengths import Counter, Counts, Row, counted, tokenizer_digest
from vlm_agent.training.data.sentence_kinds.kind import (
    LISTED,
    PassCounts,
    SentenceKind,
    check_notes,
    listed,
    missing_notes,
    unwritable,
)
from vlm_agent.training.data.stream import Item, RowSize, Windows

_GREY_SCREEN = np.full((448, 224, 3), GREY, np.uint8)
"""Extractors resize a screen, so a grey one of any size has the same features."""


_STEPS = ("source", "dropped", "cut", "target", "is_writable", "is_learned", "elements", "missing")


def note_on_sources(steps: np.ndarray, limit: int, described: bool) -> Note:
    """How many sources are too long. `steps`: rows of `ChainOfActionsKind.counts` that are learned. `limit`:
    `data.max_source_tokens`. `described`: whether what follows the goal is the description of the screen."""
    total, shorter, cut = len(steps), int((steps["dropped"] > 0).sum()), int((steps["cut"] > 0).sum())
    lost, lost_tokens = int(steps["dropped"].sum()), int(steps["cut"].sum())
    after_goal = "screen description" if described else "texts (screen description, result)"
    line = (
        f"sources of at most {limit} tokens: of {total:,}, {shorter:,} ({shorter / total:.1%}) lose earlier "
        f"actions, {lost:,} in all; {cut:,} ({cut / total:.1%}) lose the end of their {after_goal}"
    )
    figures: dict[str, Any] = {
        "sources": total,
        "lose_actions": shorter,
        "actions_lost": lost,
        "lose_description": cut,
        "description_tokens_lost": lost_tokens,
        "mean_tokens": float(steps["source"].mean()),
        "max_tokens": int(steps["source"].max()),
    }
    return Note("truncated_sources", line, figures)


@dataclass(frozen=True)
class ChainPass(PassCounts):
    """`source_tokens`, `target_tokens`: mean and maximum. `largest_sentence`: the workload of the longest source with
    the longest target."""

    source_tokens: tuple[float, int]
    target_tokens: tuple[float, int]
    largest_sentence: Workload

    @classmethod
    def of(cls, steps: np.ndarray, cost: CostModel, vectors: np.ndarray) -> "ChainPass":
        """`steps`: rows of `ChainOfActionsKind.counts` that are learned. `vectors`: int64 (N,), the feature vectors of
        each."""
        source, target = steps["source"], steps["target"]
        longest = int(source.max()), int(target.max())
        return cls(
            episodes=len(np.unique(steps["episode"])),
            sentences=len(steps),
            longest=int((source + target).max()),
            actions=len(steps),
            load=_workload(cost, source, target, vectors),
            source_tokens=(float(source.mean()), longest[0]),
            target_tokens=(float(target.mean()), longest[1]),
            largest_sentence=_workload(cost, np.array(longest[:1]), np.array(longest[1:]), vectors.max(keepdims=True)),
        )

    def rows(self) -> dict[str, str]:
        return {
            "tokens a source": _mean_and_maximum(*self.source_tokens),
            "tokens a target": _mean_and_maximum(*self.target_tokens),
        }

    def largest_row(self, size: RowSize) -> Workload:
        return self.largest_sentence * (size.sentences or 1)


def _mean_and_maximum(mean: float, most: int) -> str:
    return f"{mean:,.0f} (at most {most:,})"


def _workload(cost: CostModel, source: np.ndarray, target: np.ndarray, vectors: np.ndarray) -> Workload:
    """The work of a batch of these lengths (N,), without padding."""
    counts = {"source_lengths": source, "target_lengths": target, "feature_counts": vectors}
    return cost.workload({name: column.tolist() for name, column in counts.items()})


class ChainOfActionsKind(SentenceKind):
    """One sentence a step."""

    @classmethod
    def phrases_of(cls, data: DataRecipe) -> tuple[str, ...]:
        return (*PHRASES, *(HeadedNotes.PHRASES if data.notes else ()))

    @cached_property
    def sentences(self) -> StepSentences:
        recipe = self.run.recipe
        return StepSentences.of(self.run.tokenizer, recipe.action_language.build(), recipe.data)

    @property
    def feature_settings(self) -> FeatureSettings:
        """The features that the model reads."""
        return FeatureSettings.of_model(self.run.config.features)

    @cached_property
    def features(self) -> FeatureStore:
        """The stored features. Raises RecipeError without `data.features`, DatasetError for features of other shards or
        of another extractor, and of another precision than a trained model's."""
        folder, settings, about = self.run.recipe.data.features, self.feature_settings, self.run.config.features
        precision = about.get("precision")  # as `digest`: known if the model is already trained on features
        if folder is None:
            remedy = extraction_remedy(settings, self.shards.directory, precision)
            raise RecipeError(f"data.features is missing; {remedy}")
        store = FeatureStore(Path(folder))
        store.check(self.shards, settings, about.get("digest"), precision)
        return store

    def digest(self) -> bytes:
        return hashlib.sha256(repr([file["sha256"] for file in self.features.manifest["files"]]).encode()).digest()

    def complete(self, config: PretrainedConfig) -> None:
        """Adds digest and precision of the extractor, so that an evaluation refuses other features."""
        store = self.features
        config.features = config.features | {"digest": store.digest, "precision": store.precision}

    @cached_property
    def counts(self) -> Counts:
        """The steps of the episodes of the run: tokens of `source` and `target`, the earlier actions that the source
        has `dropped` and the tokens that it has `cut`, whether the action `is_writable`, and whether it also fits into
        a target and so `is_learned`, the number of `elements`, and the notes that are `missing`."""
        return self._counted(self.shards, self.episodes)

    def _counted(self, shards: ShardDataset, episodes: Sequence[int]) -> Counts:
        """`episodes`: ascending numbers. Raises RecipeError for notes and elements that the sentences need."""
        counts = counted(shards, episodes, Counter(self._count, (), _STEPS, self._identity))
        steps = counts.steps
        check_notes(steps, shards, self.run.recipe.data)
        if self.sentences.elements and len(steps) and not steps["elements"].any():
            raise RecipeError(
                f"data.elements is true, and none of {len(steps):,} steps in {shards.directory} has elements; choose "
                "shards of a source with elements, or set data.elements to false"
            )
        return counts

    @property
    def _identity(self) -> list:
        recipe = self.run.recipe
        settings = [recipe.data.model_dump(mode="json"), recipe.action_language.model_dump(mode="json")]
        return [recipe.data.sentences, *settings, tokenizer_digest(self.sentences.tokenizer)]

    def _count(self, episode: Episode) -> tuple[list[Row], list[Row]]:
        data, sentences = self.run.recipe.data, self.sentences
        missing = missing_notes(episode, data)
        if any(missing):
            return [], [(0,) * (len(_STEPS) - 1) + (lacks,) for lacks in missing]
        known = training_notes(episode, sentences.notes, data.control)
        rows: list[Row] = []
        for number, step in enumerate(known.steps):
            at, place = step_at(known, number, self._hides_history)
            try:
                source = sentences.source_of(at, place)
            except TooLongError as error:
                raise RecipeError(f"episode {episode.id}: {error}") from None
            target, is_writable = sentences.length(sentences.target(at.steps[place:])), sentences.is_writable(step)
            is_learned = is_writable and target <= sentences.max_target_tokens
            tokens = sentences.length(source.segments)
            rows.append((tokens, source.dropped, source.cut, target, is_writable, is_learned, len(step.elements), 0))
        return [], rows

    @property
    def _learned(self) -> np.ndarray:
        return self.counts.steps[self.counts.steps["is_learned"] > 0]

    @property
    def _hides_history(self) -> bool:
        return self.run.recipe.data.control == "no_history"

    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> Windows:
        steps = (self.counts if shards is self.shards else self._counted(shards, sorted(episodes))).steps
        learned = steps[steps["is_learned"] > 0]
        if not len(learned):
            raise RecipeError(
                f"none of the actions in {shards.directory} can be learned: the tokenizer cannot write them, or they "
                "exceed data.max_target_tokens; choose another tokenizer or action_language, or a higher limit"
            )
        number = learned["number"]
        tokens = learned["source"] + learned["target"]
        return Windows.of([learned["episode"], 0 * number, number, number + 1, tokens], episodes)

    def writer(self, shards: ShardDataset) -> "Steps":
        grey = self._grey if self.run.recipe.data.control == "grey_screens" else None
        return Steps(shards, self.sentences, self.features, grey, self.run.recipe.data.control)

    @cached_property
    def _grey(self) -> np.ndarray:
        """float16 (T, D) of a grey screen, as the store would have them. Raises CheckpointError if the extractor has
        other weights by now."""
        store = self.features
        extractor = load_trained_extractor(self.feature_settings, store.digest, store.precision)
        return extractor.extract([_GREY_SCREEN])[0]

    def notes(self) -> list[Note]:
        described = self.sentences.elements or not self.sentences.notes.read_names
        truncated = note_on_sources(self._learned, self.sentences.max_source_tokens, described)
        return [*unwritable(self.shards, self.counts.steps), truncated, *self._long_targets()]

    def _long_targets(self) -> list[Note]:
        steps, limit = self.counts.steps, self.sentences.max_target_tokens
        long = steps[(steps["is_writable"] > 0) & (steps["is_learned"] == 0)]
        if not len(long):
            return []
        head = f"{len(long):,} steps whose target exceeds data.max_target_tokens ({limit}) are not learned:"
        tokens = long["target"][:LISTED].tolist()
        lines = [f"{line}: {count} tokens" for line, count in zip(listed(self.shards, long), tokens, strict=True)]
        return [Note.listing("long_targets", head, len(long), lines)]

    def count_pass(self, items: Sequence[Item]) -> ChainPass:
        learned, earlier = self._learned, 0 if self._hides_history else self.sentences.past_screens
        vectors = (1 + np.minimum(learned["number"], earlier)) * self.run.config.features["tokens"]
        return ChainPass.of(learned, self.run.cost, vectors)


def step_at(episode: Episode, number: int, hides_history: bool) -> tuple[Episode, int]:
    """The episode that a step is written in, and its number there. `hides_history`: as the first of its episode."""
    return (replace(episode, steps=episode.steps[number:]), 0) if hides_history else (episode, number)


@dataclass(frozen=True)
class Steps:
    """The sentence of one step. `grey`: float16 (T, D), the features of every screen of a control without vision.

    `control`: `data.control`; without history, every step is written as the first of its episode.
    """

    shards: ShardDataset
    sentences: StepSentences
    features: FeatureStore
    grey: np.ndarray | None = None
    control: str | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        assert item.window is not None  # noqa: S101 (an item of `Windows`)
        number = item.window.first_supervised
        episode, stored = self.shards.without_pixels(item.episode), self.features.steps(self.shards, item.episode)
        episode = training_notes(episode, self.sentences.notes, self.control)
        at, place = step_at(episode, number, self.control == "no_history")
        seen = [number - place + each for each in self.sentences.screen_numbers(place)]
        screens = [stored[each] if self.grey is None else self.grey for each in seen]
        sentence = self.sentences.build(at, place, screens)
        sentence.about = f"{episode.id} step {number}"
        return sentence
