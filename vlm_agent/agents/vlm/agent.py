"""The agent of the Smartphone Assistant: a vision-language model that continues a trajectory with the next action."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from transformers import PreTrainedTokenizerBase

from vlm_agent.agents.agent import Agent, Answer, Diagnostics, Turn, Usage, episode_of
from vlm_agent.agents.as_trained import NO_ELEMENTS
from vlm_agent.agents.decoding.constrained import Constrained
from vlm_agent.agents.decoding.greedy import (
    Choice,
    DecodedAnswer,
    Limits,
    answer_sentences,
    answer_spans,
    decode_sentence,
    most_likely,
)
from vlm_agent.agents.decoding.sampling import Sampling
from vlm_agent.agents.examples.of_run import references_of_run
from vlm_agent.agents.vlm import BATCH_TOKENS
from vlm_agent.episodes import Episode, Screen, without_pixels
from vlm_agent.errors import UserError
from vlm_agent.models.build import load
from vlm_agent.models.cost import DecoderShape, UnknownCostError, decoder_shape
from vlm_agent.models.decoding import CausalDecoder, Decoder
from vlm_agent.models.family import context_of, decoder_of, processor_of
from vlm_agent.models.run_layout import trained
from vlm_agent.models.weights.adapters import without_adapter
from vlm_agent.models.weights.precision import cast_linear_weights, model_device
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import CachedScreens
from vlm_agent.sentences.trajectory import TrajectorySentences, with_first_notes

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from vlm_agent.agents.vlm.together import VlmTogether


@dataclass
class VlmAgent(Agent):
    """A vision-language model with greedy decoding, or with `sampling` where it acts on phones.

    `bf16`: mixed precision, which is faster but not bit-exact between whole trajectories and single steps.
    `constrained`: constrained decoding, so that every answer is an action. `batch_tokens`: the maximum number of tokens
    per forward pass, padding included; a longer sentence is a batch of its own. `decoder`: by default the decoder of
    the model's family.
    """

    model: "PreTrainedModel | PeftModel"
    tokenizer: PreTrainedTokenizerBase
    sentences: TrajectorySentences
    bf16: bool = False
    constrained: bool = False
    batch_tokens: int = BATCH_TOKENS
    # Set by __post_init__.
    decoder: Decoder = field(default=cast("Decoder", None), compare=False, repr=False)
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        if self.decoder is None:
            self.decoder = decoder_of(self.model)

    @classmethod
    def from_run(
        cls,
        run: Path,
        bf16: bool = False,
        batch_tokens: int | None = None,
        constrained: bool = False,
        merged: bool = True,
    ) -> "VlmAgent":
        """The agent of a finished run or of a checkpoint (RUN/checkpoints/checkpoint-N), without a control."""
        recipe = read_recipe(trained(run).recipe)
        model, tokenizer = load(run, merged, model_device())
        if bf16 and merged:
            cast_linear_weights(model, torch.bfloat16)
        language = recipe.action_language.build()
        sentences = processor_of(model.config).sentences(tokenizer, language, recipe.data)
        if recipe.data.references is not None:
            references = references_of_run(trained(run).references, recipe.data.references)
            sentences = replace(sentences, references=references)
        size = tokens_at_once(model, bf16) if batch_tokens is None else batch_tokens
        return cls(model, tokenizer, sentences, bf16, constrained, size)

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        start = time.perf_counter()
        prompt = self.prompt(goal, history, screen)
        with torch.inference_mode(), self.precision():
            ids = decode_sentence(self.decoder, prompt.sentence, prompt.choice, prompt.agent.limits)
        return prompt.answer(ids, Usage(len(prompt.sentence), len(ids), calls=1, seconds=time.perf_counter() - start))

    def together(self) -> "VlmTogether | None":
        from vlm_agent.agents.vlm.together import VlmTogether

        return VlmTogether(self, self.decoder) if isinstance(self.decoder, CausalDecoder) else None

    def prompt(self, goal: str, history: Sequence[Turn], screen: Screen) -> "Prompt":
        """What `act` decodes the answer from. Raises UserError for a screen without elements that must have them."""
        if self.sentences.reads_elements and screen.elements is None:
            raise UserError(NO_ELEMENTS)
        episode = episode_of(goal, history, screen, self.sentences.notes.reads_phone)
        episode, agent = self._with_own_notes(episode, history), self._later if history else self
        has_goal = self.sentences.references.has_goal(goal, episode.id)
        return Prompt(agent, self.sentences.prompt(episode), screen, has_goal)

    def without_sight(self) -> "VlmAgent | None":
        """The agent with an empty screen in place of each; None for a model that sees pixels, which a control greys."""
        return replace(self, sentences=replace(self.sentences, grey=True)) if self.sentences.as_html else None

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """The tokens equal those of `act` step by step; each batch needs one prefill. `Usage.seconds` is None, so that
        equal runs write equal predictions.
        """
        return self.answer_prepared([VlmPreparation(self.sentences)(episode) for episode in episodes])

    def preparation(self) -> "VlmPreparation":
        """Prepares episodes in other processes; each screen is prepared once for the agent and its controls."""
        return self._preparation

    @cached_property
    def _preparation(self) -> "VlmPreparation":
        prepare = getattr(self.decoder, "prepare_screen", None)
        return VlmPreparation(replace(self.sentences, screens=CachedScreens(self.sentences.screens, prepare)))

    def answer_prepared(self, prepared: Sequence["PreparedEpisode"]) -> list[list[Answer]]:
        if self.sampling is not None:
            raise UserError("agent.temperature is for tasks on phones, not for recorded steps: remove it")
        return self._answer_with_own_notes(prepared) if self.sentences.notes.first_names else self._answer_all(prepared)

    def _answer_all(self, prepared: Sequence["PreparedEpisode"]) -> list[list[Answer]]:
        decoded = iter(self._decoded([sentence for one in prepared for sentence in one.sentences]))
        return [self._answers(one, [next(decoded) for _ in one.sentences]) for one in prepared]

    def _answer_with_own_notes(self, prepared: Sequence["PreparedEpisode"]) -> list[list[Answer]]:
        """Later steps read the notes that the agent wrote at the first step, as in `act`."""
        firsts = self._answer_all([one.part(0, 1) for one in prepared])
        rest = [self._rest(one, first) for one, (first,) in zip(prepared, firsts, strict=True)]
        return [[*first, *later] for first, later in zip(firsts, self._later._answer_all(rest), strict=True)]

    def _rest(self, prepared: "PreparedEpisode", first: Answer) -> "PreparedEpisode":
        """The steps after the first one, with the notes of the first one after the goal."""
        lines = self.sentences.notes.first(self._first_notes(first))
        ids = [token for line in lines for token in self.sentences.ids(line)]
        at, rest = self.sentences.length(self.sentences.opening(prepared.episode)), prepared.part(1, None)
        return replace(rest, sentences=[sentence.with_read(at, ids) for sentence in rest.sentences])

    def _first_notes(self, answer: Answer) -> dict[str, str]:
        return {name: answer.notes.get(name, "") for name in self.sentences.notes.first_names}

    def _with_own_notes(self, episode: Episode, history: Sequence[Turn]) -> Episode:
        """With the notes of the agent's first answer that later steps read; for a demonstrated first step the agent
        writes them."""
        if not (history and self.sentences.notes.first_names):
            return episode
        first = history[0].answer
        answer = self.act(episode.goal, (), history[0].screen) if first is None else first
        return with_first_notes(episode, self._first_notes(answer))

    @cached_property
    def _later(self) -> "VlmAgent":
        """The agent that decodes steps after the first one, whose answers lack the notes of the first one."""
        if not self.sentences.notes.first_names:
            return self
        return replace(self, sentences=replace(self.sentences, notes=self.sentences.notes.at(is_first=False)))

    def _decoded(self, sentences: Sequence[Sentence]) -> list[list[DecodedAnswer]]:
        """Answers as [sentence][action], decoded in batches."""
        decoded: list[list[DecodedAnswer]] = [[] for _ in sentences]
        with torch.inference_mode(), self.precision():
            for batch in batches([len(sentence.input_ids) for sentence in sentences], self.batch_tokens):
                shown = [sentences[index] for index in batch]
                answers = answer_sentences(self.decoder, shown, self.limits, self.choice)
                for index, of_sentence in zip(batch, answers, strict=True):
                    decoded[index] = of_sentence
        return decoded

    def _answers(self, prepared: "PreparedEpisode", decoded: Sequence[Sequence[DecodedAnswer]]) -> list[Answer]:
        """`decoded`: the answers of each sentence of the episode."""
        answers = [
            (start, answer)
            for sentence, of_sentence in zip(prepared.sentences, decoded, strict=True)
            for (start, _), answer in zip(answer_spans(sentence, self.limits.end_mark), of_sentence, strict=True)
        ]
        return [
            self._answer(
                answer.ids,
                step.screen,
                Usage(start, len(answer.ids), from_prefill=answer.from_prefill),
                not self.sentences.writes(self.sentences.language.encode(step.action, step.screen)),
                prepared.has_goal,
            )
            for step, (start, answer) in zip(prepared.episode.steps, answers, strict=True)
        ]

    def _answer(
        self, ids: list[int], screen: Screen, usage: Usage, unwritable: bool = False, has_goal: bool | None = None
    ) -> Answer:
        text = self.sentences.text(ids)
        language, (notes, words) = self.sentences.language, self.sentences.notes.split(text)
        action, box = language.decode(words, screen), language.predicted_box(words, screen)
        return Answer(
            text,
            action,
            notes,
            box=box,
            usage=usage,
            diagnostics=Diagnostics(
                unwritable=unwritable,
                reference_has_goal=has_goal,
                beyond_context=self._context is not None and sum(usage.tokens or (0, 0)) > self._context,
            ),
        )

    @cached_property
    def _context(self) -> int | None:
        return context_of(without_adapter(self.model).config)

    @cached_property
    def choice(self) -> Choice:
        if not self.constrained:
            return most_likely
        return Constrained(self.tokenizer, self.sentences.language, self.limits, self.sentences.ending)

    @property
    def limits(self) -> Limits:
        return Limits(self.sentences.end_mark, self.sentences.max_answer_tokens)

    def precision(self) -> torch.autocast:
        return torch.autocast(cast(torch.device, self.model.device).type, torch.bfloat16, enabled=self.bf16)


@dataclass(frozen=True, eq=False)
class Prompt:
    """The sentence of one step, and the agent whose limits its answer has. `has_goal`: see `PreparedEpisode`."""

    agent: VlmAgent
    sentence: Sentence
    screen: Screen
    has_goal: bool | None

    @property
    def choice(self) -> Choice:
        """How each token of the answer is chosen; with sampling, another one for every answer."""
        sampling = self.agent.sampling
        return self.agent.choice if sampling is None else sampling.of_step(self.screen.episode, self.screen.step)

    def answer(self, ids: list[int], usage: Usage) -> Answer:
        """`ids`: the tokens that were decoded."""
        return self.agent._answer(ids, self.screen, usage, has_goal=self.has_goal)


@dataclass(frozen=True)
class PreparedEpisode:
    """An episode without pixels, and its sentences: one, or one a step. `has_goal`: whether a reference has its goal;
    None without references."""

    episode: Episode
    sentences: list[Sentence]
    has_goal: bool | None = None

    def part(self, first: int, last: int | None) -> "PreparedEpisode":
        """Steps `first` … `last`-1, of an episode with a sentence a step."""
        steps, start = self.episode.steps[first:last], self.episode.first_step + first
        episode = replace(self.episode, steps=steps, first_step=start)
        return replace(self, episode=episode, sentences=self.sentences[first:last])


@dataclass(frozen=True)
class VlmPreparation:
    sentences: TrajectorySentences

    def __call__(self, episode: Episode) -> PreparedEpisode:
        has_goal = self.sentences.references.has_goal(episode.goal, episode.id)
        return PreparedEpisode(without_pixels(episode), self.sentences.sentences_of(episode), has_goal)


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of the sentences in each batch. Sentences of similar length share a batch.

    A batch has at most `budget` tokens, padding included, unless a single sentence is longer.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if found and (len(found[-1]) + 1) * lengths[index] <= budget:
            found[-1].append(index)
        else:
            found.append([index])
    return found


MOST_TOKENS = 65_536
"""A larger batch makes no kernel faster, and leaves no batch to prepare while it runs."""


def tokens_at_once(model: "PreTrainedModel | PeftModel", bf16: bool) -> int:
    """The tokens of a batch on the model's device: `BATCH_TOKENS` on a CPU, and for a language model of unknown sizes.
    On a GPU a power of two, up to `MOST_TOKENS`, that half of its free memory has room for."""
    device, config = cast(torch.device, model.device), without_adapter(model).config
    if device.type != "cuda":
        return BATCH_TOKENS
    try:
        token = bytes_of_token(decoder_shape(config.get_text_config()), bf16)
    except UnknownCostError:
        return BATCH_TOKENS
    return fitting_tokens(torch.cuda.mem_get_info(device)[0], token)


def bytes_of_token(shape: DecoderShape, bf16: bool) -> int:
    """An estimate of the memory for one token: its keys and values, of the prefill and of the steps; the results of one
    layer; and as much of the vision tower, which sees four or five patches a token."""
    cached = 2 * shape.layers * 2 * shape.kv_width
    layer = 8 * shape.hidden + 4 * shape.intermediate
    return (cached + 2 * layer) * (2 if bf16 else 4)


def fitting_tokens(free: int, token: int) -> int:
    """The largest power of two of tokens in half of `free` bytes; at least 1, at most `MOST_TOKENS`."""
    return min(MOST_TOKENS, 1 << max(0, (free // 2 // token).bit_length() - 1))
