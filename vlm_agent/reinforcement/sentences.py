"""What the learner reads: sentences with the sampled tokens as targets, after exactly the history that the agent read.

The history of a prompt writes an action in the language's own form, which is not always how the agent wrote it. An
answer that the last prompt repeats as it was sampled is a target inside it; each other one is a branch of it, or ends a
sentence of its own where the last prompt no longer holds what the agent read.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vlm_agent.models.family import Processor
from vlm_agent.models.loss import Policy
from vlm_agent.reinforcement.rollouts import RecordedAnswer
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence


@dataclass
class Scored:
    """A sentence, and beside each token its advantage and the log-probability with which it was sampled: 0 and NaN
    where it was not."""

    sentence: Sentence
    advantages: list[float]
    log_probabilities: list[float]

    @classmethod
    def of(cls, sentence: Sentence, advantage: float = 0.0) -> "Scored":
        """Before its answers are known."""
        return cls(sentence, [advantage] * len(sentence), [math.nan] * len(sentence))

    def is_sampled(self) -> bool:
        return not all(map(math.isnan, self.log_probabilities))

    def branch(self, prefix: int, answer: RecordedAnswer) -> int:
        """The place of the answer as a branch of the first `prefix` tokens."""
        self.sentence.branch(prefix, answer.ids)
        count = 1 + len(answer.ids)
        self.advantages += [0.0] * count
        self.log_probabilities += [math.nan] * count
        return len(self.sentence) - len(answer.ids)

    def score(self, at: int, answer: RecordedAnswer, kind: int, advantage: float) -> None:
        """The tokens from `at` on are the answer's."""
        count = len(answer.ids)
        self.sentence.labels[at : at + count] = answer.ids
        self.sentence.kinds[at : at + count] = [kind] * count
        self.advantages[at : at + count] = [advantage] * count
        self.log_probabilities[at : at + count] = answer.log_probabilities


def scored(
    prompts: Sequence[Sentence], answers: Sequence[RecordedAnswer], kinds: Sequence[int], advantages: Sequence[float]
) -> list[Scored]:
    """The sentences of a rollout, in which every answer is scored once. `prompts`: what the agent read before each."""
    trunk = Scored.of(_followed(prompts[-1], answers[-1]))
    found, last = [trunk], _followed(prompts[-1], answers[-1])
    for prompt, answer, kind, advantage in zip(prompts, answers, kinds, advantages, strict=True):
        one, at = trunk, len(prompt)
        if not _begins(last, prompt, answer.ids):
            if _begins(last, prompt):
                at = trunk.branch(at, answer)
            else:
                found.append(one := Scored.of(_followed(prompt, answer)))
        one.score(at, answer, kind, advantage)
    return found


def _followed(prompt: Sentence, answer: RecordedAnswer) -> Sentence:
    """The prompt and the answer, without a loss: a prompt labels the actions of its history."""
    sentence = prompt.prefix(len(prompt))
    sentence.read(answer.ids)
    sentence.labels, sentence.kinds = [IGNORED] * len(sentence), [NO_ACTION] * len(sentence)
    return sentence


def _begins(sentence: Sentence, prompt: Sentence, answer: Sequence[int] = ()) -> bool:
    """Whether the sentence begins with the prompt and the answer, screens included."""
    ids = [*prompt.input_ids, *answer]
    same_screens = all(one is other for one, other in zip(prompt.screens, sentence.screens, strict=False))
    return same_screens and len(ids) <= len(sentence) and sentence.input_ids[: len(ids)] == ids


def dealt(sentences: Sequence[Scored], rows: int, seed: str) -> list[list[Scored]]:
    """The sentences in `rows` rows of about equally many tokens, in an order by `seed`; rows are empty where sentences
    are fewer."""
    order = random.Random(seed).sample(range(len(sentences)), len(sentences))  # noqa: S311 (no secret)
    found: list[list[Scored]] = [[] for _ in range(rows)]
    tokens = [0] * rows
    for one in sorted((sentences[place] for place in order), key=lambda one: -len(one.sentence)):
        row = tokens.index(min(tokens))
        found[row].append(one)
        tokens[row] += len(one.sentence)
    return random.Random(f"{seed}/rows").sample(found, rows)  # noqa: S311 (no secret)


def collated(
    row: Sequence[Scored], processor: Processor, temperature: float, clip: tuple[float, float] | None
) -> dict[str, Any]:
    """A batch with its `Policy`. `clip` None: no ratios."""
    batch = processor.collate([one.sentence for one in row])
    columns = [[value for one in row for value in getattr(one, name)] for name in ("advantages", "log_probabilities")]
    advantages, sampled = (torch.tensor(column).view(batch["labels"].shape) for column in columns)
    if clip is None:
        sampled = torch.full_like(sampled, math.nan)
    return batch | {"policy": Policy(advantages, sampled, temperature, clip or (0.0, 0.0))}
