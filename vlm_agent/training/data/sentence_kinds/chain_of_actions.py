"""Each step as a source and a target (`sentences/steps.py`), with stored screen features (Auto-UI)."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from transformers import PretrainedConfig

from vlm_agent.agents.controls import GREY
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.models.features import load_trained_extractor
from vlm_agent.models.features.store import FeatureStore, extraction_remedy
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import FeatureSettings
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.steps import PHRASES, StepSentences, TooLongError, step_sentences
from vlm_agent.sentences.thoughts import controlled_texts, headed
from vlm_agent.sentences.trajectory import unwritable_line
from vlm_agent.sentences.windows import Window
from vlm_agent.training.data.count_cache import CountCache, cache_folder
from vlm_agent.training.data.data_module import LISTED, Note, Unwritable
from vlm_agent.training.data.sentence_kinds.chain_counts import ChainCounts, count_chains
from vlm_agent.training.data.sentence_kinds.chain_pass import ChainPass, Truncation, sample_sources, truncation_of
from vlm_agent.training.data.sentence_kinds.kind import SentenceKind
from vlm_agent.training.data.stream import Item
from vlm_agent.training.data.token_counts import columns_for

_GREY_SCREEN = np.full((448, 224, 3), GREY, np.uint8)
"""Extractors resize a screen, so a grey one of any size has the same features."""


class ChainOfActionsKind(SentenceKind):
    """One sentence a step."""

    phrases = PHRASES

    @classmethod
    def phrases_of(cls, data: DataRecipe) -> tuple[str, ...]:
        return (*cls.phrases, *(headed.PHRASES if data.coat.is_on else ()))

    @cached_property
    def sentences(self) -> StepSentences:
        recipe = self.run.recipe
        return step_sentences(self.run.tokenizer, recipe.action_language.build(), recipe.data)

    @property
    def feature_settings(self) -> FeatureSettings:
        """The features that the model reads."""
        return FeatureSettings.of_model(self._about_features)

    @property
    def _about_features(self) -> Mapping[str, Any]:
        """With `digest` and `precision` if the model is already trained on features."""
        return self.run.config.features

    @cached_property
    def features(self) -> FeatureStore:
        """The stored features. Raises RecipeError without `data.features`, DatasetError for features of other shards or
        of another extractor, and of another precision than a trained model's."""
        folder, settings, about = self.run.recipe.data.features, self.feature_settings, self._about_features
        precision = about.get("precision")
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
    def counts(self) -> ChainCounts:
        """The tokens of the episodes of the run."""
        return self._counted(self.shards, self.episodes)

    def _counted(self, shards: ShardDataset, episodes: Sequence[int]) -> ChainCounts:
        """`episodes`: numbers in ascending order."""
        columns = columns_for(shards, self.sentences, episodes=episodes, control=self.run.recipe.data.control)
        cache = CountCache(cache_folder(), self.run.recipe.action_language.model_dump(mode="json"))
        ids = [shards.ids[index] for index in episodes]
        try:
            return count_chains(columns, self.sentences, episodes, ids, cache, self._hides_history)
        except TooLongError as error:
            raise RecipeError(str(error)) from None

    @property
    def _hides_history(self) -> bool:
        return self.run.recipe.data.control == "no_history"

    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> "StepItems":
        counts = self.counts if shards is self.shards else self._counted(shards, sorted(episodes))
        order = {episode: place for place, episode in enumerate(episodes)}
        learned = np.flatnonzero(counts.is_learned)
        if not len(learned):
            raise RecipeError(
                f"none of the actions in {shards.directory} can be learned: the tokenizer cannot write them, or they "
                "exceed data.max_target_tokens; choose another tokenizer or action_language, or a higher limit"
            )
        places = np.array([order[episode] for episode in counts.episode_of[learned].tolist()])
        learned = learned[np.argsort(places, kind="stable")]
        tokens = (counts.source + counts.target)[learned]
        return StepItems(counts.episode_of[learned], counts.step_of[learned], tokens)

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

    def unwritable(self) -> Unwritable:
        return self._listed(np.flatnonzero(~self.counts.is_writable))

    def _listed(self, steps: np.ndarray) -> Unwritable:
        counts = self.counts
        lines = []
        for step in steps[:LISTED].tolist():
            episode, number = int(counts.episode_of[step]), int(counts.step_of[step])
            action = self.shards.without_pixels(episode).steps[number].action
            lines.append(unwritable_line(self.shards.ids[episode], number, action))
        return Unwritable(len(steps), tuple(lines))

    def notes(self) -> list[Note]:
        return [self._truncation.note(), *self._long_targets()]

    @cached_property
    def _truncation(self) -> Truncation:
        if self.sentences.elements:
            return sample_sources(self.shards, self.sentences, self.counts, self.run.recipe.data.control)
        return truncation_of(self.counts, self.sentences)

    def _long_targets(self) -> list[Note]:
        counts, limit = self.counts, self.sentences.max_target_tokens
        steps = np.flatnonzero(counts.is_writable & ~counts.is_learned)
        if not len(steps):
            return []
        listed = self._listed(steps)
        head = f"{listed.count:,} steps whose target exceeds data.max_target_tokens ({limit}) are not learned:"
        lines = [
            f"{line}: {tokens} tokens"
            for line, tokens in zip(listed.first, counts.target[steps[:LISTED]].tolist(), strict=True)
        ]
        return [Note.of_list("long_targets", head, listed.count, lines)]

    def count_pass(self, items: Sequence[Item]) -> ChainPass:
        earlier = 0 if self._hides_history else self.sentences.past_screens
        screens = 1 + np.minimum(self.counts.step_of[self.counts.is_learned], earlier)
        vectors = screens * self.run.config.features["tokens"]
        return ChainPass.of(self.counts, self._truncation, self.run.flops.cost, vectors)


@dataclass(frozen=True, eq=False)
class StepItems(Sequence[Item]):
    """An item for each learned step, built on access: millions of objects would take gigabytes.

    `episodes`, `steps`: int64 (N,). `tokens`: int64 (N,), of source and target, without a screen description.
    """

    episodes: np.ndarray
    steps: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.episodes)

    @overload
    def __getitem__(self, number: int) -> Item: ...

    @overload
    def __getitem__(self, number: slice) -> list[Item]: ...

    def __getitem__(self, number: int | slice) -> Item | list[Item]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        step = int(self.steps[number])
        return Item(int(self.episodes[number]), Window(0, step, step + 1, int(self.tokens[number])))


@dataclass(frozen=True)
class Steps:
    """The sentence of one step. `grey`: float16 (T, D), the features of every screen of a control without vision.

    `without_history`: every step is written as the first of its episode.
    """

    shards: ShardDataset
    sentences: StepSentences
    features: FeatureStore
    grey: np.ndarray | None = None
    control: str | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        assert item.window is not None  # noqa: S101 (an item of `StepItems`)
        number = item.window.first_supervised
        episode, stored = self.shards.without_pixels(item.episode), self.features.steps(self.shards, item.episode)
        episode = controlled_texts(episode, self.sentences.thoughts.parts, self.control)
        first = number if self.control == "no_history" else 0
        seen = [first + each for each in self.sentences.screen_numbers(number - first)]
        screens = [stored[each] if self.grey is None else self.grey for each in seen]
        sentence = self.sentences.build(replace(episode, steps=episode.steps[first:]), number - first, screens)
        sentence.about = f"{episode.id} step {number}"
        return sentence
