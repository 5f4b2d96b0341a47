"""The agent of Auto-UI: an encoder-decoder that writes a plan and an action from earlier actions, goal and screen."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Agent, Answer, Diagnostics, Preparation, Turn, Usage, episode_of
from vlm_agent.agents.auto_ui import BATCH_SIZE
from vlm_agent.agents.auto_ui.features import FeatureLookup, LookedUp, ScreenFeatures
from vlm_agent.agents.decoding.constrained import Constrained
from vlm_agent.agents.decoding.greedy import Choice, Limits, answer_sources, decode_sentence, most_likely
from vlm_agent.episodes import Episode, Screen, Step, is_same_text, without_pixels
from vlm_agent.errors import UserError
from vlm_agent.models.build import load
from vlm_agent.models.decoding import SourceDecoder
from vlm_agent.models.family import decoder_of
from vlm_agent.models.features.store import FeatureStore
from vlm_agent.models.run_layout import trained
from vlm_agent.models.weights.precision import model_device
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.segments import Segment
from vlm_agent.sentences.steps import StepSentences, TooLongError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

CONSTRAINED_TOKENS = 256
"""Tokens that a constrained answer may have beyond `max_target_tokens`. Constrained decoding counts a token for each
byte of the text that completes an answer, at most about 150 bytes here, so no answer of a usual length is affected."""


@dataclass
class AutoUiAgent(Agent):
    """An encoder-decoder with greedy decoding.

    `bf16`: mixed precision, which is faster but not bit-exact between batches and single steps. `constrained`: every
    answer is a plan and an action. `batch_size`: steps that are decoded together. `decoder`: by default the decoder of
    the model's family.
    """

    model: "PreTrainedModel | PeftModel"
    tokenizer: PreTrainedTokenizerBase
    sentences: StepSentences
    features: ScreenFeatures
    bf16: bool = False
    constrained: bool = False
    batch_size: int = BATCH_SIZE
    # Set by __post_init__.
    decoder: SourceDecoder = field(default=cast("SourceDecoder", None), compare=False, repr=False)
    _elements_seen: bool = field(default=False, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.decoder is None:
            self.decoder = cast(SourceDecoder, decoder_of(self.model))
        _ = self._decoding  # a tokenizer that cannot be constrained is refused before the first answer

    @classmethod
    def from_run(
        cls,
        run: Path,
        bf16: bool = False,
        batch_size: int = BATCH_SIZE,
        constrained: bool = False,
        features: Path | None = None,
        merged: bool = True,
    ) -> "AutoUiAgent":
        """The agent of a finished run or of a checkpoint (RUN/checkpoints/checkpoint-N), without a control.

        `features`: a folder of `vlm-agent features`, where screens are looked up. Raises DatasetError if it is of
        another extractor than the run's.
        """
        recipe, device = read_recipe(trained(run).recipe), model_device()
        store = None if features is None else FeatureStore(features)
        model, tokenizer = load(run, merged, device)
        screens = ScreenFeatures.of_model(model.config.features, store, device)
        sentences = StepSentences.of(tokenizer, recipe.action_language.build(), recipe.data)
        return cls(model, tokenizer, sentences, screens, bf16, constrained, batch_size)

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        """Raises UserError for a screen without pixels, and without elements where the run reads them."""
        start = time.perf_counter()
        if self.sentences.elements and screen.elements is None:
            raise UserError(
                "this run reads the elements of screens (data.elements: true), and this source provides none; choose a "
                "device or source that does, or a run with data.elements: false"
            )
        episode = episode_of(goal, history, screen, self.sentences.notes.reads_phone)
        seen = [episode.steps[number].screenshot for number in self.sentences.screen_numbers(len(history))]
        features = self.features.of([self.features.lookup(screenshot) for screenshot in seen])
        sentence = self.sentences.encode(self.sentences.prompt_segments(episode, len(history)), features)
        with torch.inference_mode(), self._precision():
            ids = decode_sentence(self.decoder, sentence, *self._decoding)
        return self._answer(ids, screen, Usage(len(sentence), len(ids), calls=1, seconds=time.perf_counter() - start))

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """The tokens equal those of `act` step by step. `Usage.seconds` is None, so that equal runs write equal
        predictions.
        """
        return self.answer_prepared([self.preparation()(episode) for episode in episodes])

    def preparation(self) -> Preparation:
        return partial(prepare, self.sentences, self.features.lookup)

    def answer_prepared(self, prepared: Sequence["PreparedEpisode"]) -> list[list[Answer]]:
        """Raises UserError where the run reads the elements of screens, and no step so far has any."""
        self._check_elements(prepared)
        features = iter(self.features.of([screen for one in prepared for screen in one.screens]))
        sentences = [self._sentences(one, [next(features) for _ in one.screens]) for one in prepared]
        decoded = iter(self._decode([sentence for each in sentences for sentence in each], *self._decoding))
        return [self._answers(one, each, decoded) for one, each in zip(prepared, sentences, strict=True)]

    def _check_elements(self, prepared: Sequence["PreparedEpisode"]) -> None:
        """A single screen may have no elements; those of a whole part of the data have none if it was converted
        without."""
        steps = [step for one in prepared for step in one.episode.steps]
        if not self.sentences.elements or self._elements_seen or not steps:
            return
        if not any(step.elements for step in steps):
            raise UserError(
                f"this run reads the elements of screens (data.elements: true), and none of {len(steps)} steps, from "
                f"episode {prepared[0].episode.id} on, has any; evaluate on data with elements, or a run with "
                "data.elements: false"
            )
        self._elements_seen = True

    def _sentences(self, prepared: "PreparedEpisode", features: Sequence[np.ndarray]) -> list[Sentence]:
        return [
            self.sentences.encode(
                [*source, *self.sentences.screens_of(prepared.episode, number)],
                [features[place] for place in self.sentences.screen_numbers(number)],
            )
            for number, source in enumerate(prepared.sources)
        ]

    def _decode(self, sentences: Sequence[Sentence], choose: Choice, limits: Limits) -> list[list[int]]:
        """The tokens of the answer to each source. Sources of similar length share a batch."""
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        decoded: list[list[int]] = [[] for _ in sentences]
        with torch.inference_mode(), self._precision():
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                answers = answer_sources(self.decoder, [sentences[index] for index in batch], choose, limits)
                for index, ids in zip(batch, answers, strict=True):
                    decoded[index] = ids
        return decoded

    def _answers(
        self, prepared: "PreparedEpisode", sentences: Sequence[Sentence], decoded: Iterator[list[int]]
    ) -> list[Answer]:
        """Takes the episode's answers from `decoded`."""
        steps = prepared.episode.steps
        return [
            self._answer(ids, step.screen, Usage(len(sentence), len(ids), from_prefill=False), is_unwritable)
            for step, sentence, is_unwritable, ids in zip(
                steps, sentences, prepared.unwritable, islice(decoded, len(steps)), strict=True
            )
        ]

    def _answer(self, ids: list[int], screen: Screen, usage: Usage, is_unwritable: bool = False) -> Answer:
        sentences, text = self.sentences, self.sentences.text(ids)
        written, rest = sentences.notes.split(text)
        plan, decision = sentences.plan_of(rest), sentences.decision_of(rest)
        action = sentences.language.decode(decision, screen)
        box = sentences.language.predicted_box(decision, screen)
        notes = {**written, "plan": "\n".join(plan)} if plan else written
        return Answer(text, action, notes, box=box, usage=usage, diagnostics=Diagnostics(unwritable=is_unwritable))

    @cached_property
    def _decoding(self) -> tuple[Choice, Limits]:
        if not self.constrained:
            return most_likely, Limits(self.sentences.end_mark, self.sentences.max_target_tokens)
        limits = Limits(self.sentences.end_mark, self.sentences.max_target_tokens + CONSTRAINED_TOKENS)
        return Constrained(self.tokenizer, self.sentences.language, limits, self.sentences.ending), limits

    def _precision(self) -> torch.autocast:
        return torch.autocast(cast(torch.device, self.model.device).type, torch.bfloat16, enabled=self.bf16)


@dataclass(frozen=True)
class PreparedEpisode:
    """An episode without pixels; for each step the segments of its source, its screen, and whether no answer can match
    its action, because the tokenizer or the language cannot write it."""

    episode: Episode
    sources: list[list[Segment]]
    screens: list[LookedUp]
    unwritable: list[bool]


def prepare(sentences: StepSentences, lookup: FeatureLookup, episode: Episode) -> PreparedEpisode:
    """Raises UserError for a goal that is too long, and for screens without pixels."""
    steps = episode.steps
    try:
        sources = [sentences.source_of(episode, number).segments for number in range(len(steps))]
    except TooLongError as error:
        raise UserError(f"episode {episode.id}: {error}") from None
    screens = [lookup(step.screenshot) for step in steps]
    unwritable = [not (sentences.is_writable(step) and _keeps_text(sentences.language, step)) for step in steps]
    return PreparedEpisode(without_pixels(episode), sources, screens, unwritable)


def _keeps_text(language: ActionLanguage, step: Step) -> bool:
    """Whether the language writes the whole text of an action: Auto-UI's, as published, leaves out quotation marks and
    backslashes. Training learns such actions all the same, as the published code does."""
    if not step.action.text:
        return True
    decoded = language.decode(language.encode(step.action, step.screen), step.screen)
    return decoded is not None and is_same_text(decoded.text, step.action.text)
