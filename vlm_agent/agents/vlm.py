"""The smartphone assistant: a vision-language model that continues the trajectory's sentence with the next action."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from vlm_agent.agents import Answer
from vlm_agent.agents.constrained import Constrained
from vlm_agent.agents.greedy import Choice, Limits, Reader, Said, answer_sentences, most_likely
from vlm_agent.agents.readers import reader_of
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.models.build import load
from vlm_agent.models.reading import reading_of
from vlm_agent.models.trained import trained
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.recipe import read_recipe

MAX_ACTION_TOKENS = 64
BATCH_TOKENS = 8192


@dataclass
class VlmAgent:
    """Greedy decoding. `remember` False makes it an agent without history: each step is its first.

    `constrained` keeps it to the action language: every answer is an action.
    `bf16` runs in mixed precision: faster, and no longer bit-exact between whole trajectories and single steps.
    `reader` is made for the model where none is given, and shared with what the agent becomes without a sense.
    `batch_tokens` bounds how much of several episodes is read at once, padding counted; a longer one is read alone.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    sentences: TrajectorySentences
    remember: bool = True
    bf16: bool = False
    constrained: bool = False
    batch_tokens: int = BATCH_TOKENS
    reader: Reader | None = field(default=None, compare=False, repr=False)

    def __post_init__(self):
        if self.reader is None:
            self.reader = reader_of(self.model)

    @classmethod
    def from_run(cls, run: Path, bf16: bool = False, batch_tokens: int = BATCH_TOKENS) -> "VlmAgent":
        """The agent of a finished run, or of a checkpoint (RUN/checkpoints/checkpoint-N).

        One that was trained without a sense (`data.control`) stays without it.
        """
        recipe = read_recipe(trained(run).recipe)
        model, tokenizer = load(run, merged=True)
        # flash-attn takes no mask of ours; PyTorch's own reads a whole sentence as fast.
        model.language_model.set_attn_implementation("sdpa")
        sentences = reading_of(model.config).sentences(tokenizer, recipe.action_language.build())
        device = "cuda" if torch.cuda.is_available() else "cpu"
        agent = cls(model.to(device), tokenizer, sentences, bf16=bf16, batch_tokens=batch_tokens)
        return agent._trained_under(recipe.data.control)

    def _trained_under(self, control: str | None) -> "VlmAgent":
        """With the senses that it had in training."""
        if control is None:
            return self
        return {"grey_screens": self.on_grey_screens, "no_history": self.without_history}[control]()

    def on_grey_screens(self) -> "VlmAgent":
        return replace(self, sentences=replace(self.sentences, grey=True))

    def without_history(self) -> "VlmAgent":
        return replace(self, remember=False)

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer:
        now = Step(screenshot, Action.impossible())  # its action is unknown and not read
        steps = (*history, now) if self.remember else (now,)
        sentence = self.sentences.build(Episode("", "", goal, steps[:-1]))
        self.sentences.add_screen(sentence, now)
        with torch.inference_mode(), self._precision():
            said = self._continue(sentence)
        return replace(self._answer(said), tokens=(len(sentence), len(said)))

    def answer_episode(self, episode: Episode) -> list[Answer]:
        """What the agent says at each step when every earlier step went as demonstrated."""
        return self.answer_episodes([episode])[0]

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """`answer_episode` of many, a batch at a time in one pass: the same tokens as `act` step by step."""
        return self._answer_all(episodes, [self._choice])[0]

    def answer_both_ways(self, episodes: Sequence[Episode]) -> tuple[list[list[Answer]], list[list[Answer]]]:
        """`answer_episodes` decoding freely, and kept to the action language, from the same pass."""
        free, constrained = self._answer_all(episodes, [most_likely, self._kept_to_actions])
        return free, constrained

    def _answer_all(self, episodes: Sequence[Episode], choices: list[Choice]) -> list[list[list[Answer]]]:
        """[choice][episode][step]"""
        sentences = [sentence for episode in episodes for sentence in self._sentences_of(episode)]
        said: dict[int, list[list[Said]]] = {}
        with torch.inference_mode(), self._precision():
            for batch in batches([len(sentence.input_ids) for sentence in sentences], self.batch_tokens):
                chosen = [sentences[number] for number in batch]
                answers = answer_sentences(self.reader, chosen, self._limits, choices)
                said |= zip(batch, zip(*answers, strict=True), strict=True)
        flat = [[one for number in range(len(sentences)) for one in said[number][way]] for way in range(len(choices))]
        return [_by_episode([self._answer(one.ids, one.settled) for one in way], episodes) for way in flat]

    def _sentences_of(self, episode: Episode) -> Iterator[Sentence]:
        if self.remember:
            yield self.sentences.build(episode)
        else:
            yield from (self.sentences.build(episode, number, number + 1) for number in range(len(episode)))

    def _continue(self, sentence: Sentence) -> list[int]:
        """Token by token, the plain way that everything faster is held to."""
        reader, said = self.reader, []
        begun = reader.begin(sentence)
        logits, place = begun.logits, begun.place
        while not said or not self._limits.reached(said):
            if said:
                read = torch.ones(1, 1, len(sentence) + len(said), dtype=torch.bool)
                now = torch.tensor([[place]])
                logits, place = reader.step(torch.tensor([said[-1:]]), now, read, begun.cache)[0, -1], place + 1
            said.append(self._choice(said, int(logits.argmax()), lambda logits=logits: logits))
        return said

    def _answer(self, said: list[int], settled: bool | None = None) -> Answer:
        text = self.sentences.text(said)
        return Answer(text, self.sentences.language.parse(text), settled)

    @property
    def _choice(self) -> Choice:
        return self._kept_to_actions if self.constrained else most_likely

    @cached_property
    def _kept_to_actions(self) -> Constrained:
        return Constrained(self.tokenizer, self.sentences.language, self._limits)

    @property
    def _limits(self) -> Limits:
        return Limits(self.tokenizer.eos_token_id, MAX_ACTION_TOKENS)

    def _precision(self):
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.bf16)


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of sentences to read together: of like length, and at most `budget` tokens with their padding, unless one
    alone is longer."""
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if found and (len(found[-1]) + 1) * lengths[index] <= budget:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def _by_episode(answers: list[Answer], episodes: Sequence[Episode]) -> list[list[Answer]]:
    rest = iter(answers)
    return [[next(rest) for _ in episode.steps] for episode in episodes]
