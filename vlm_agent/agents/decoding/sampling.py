"""Sampling at a temperature: a draw depends on the logits, a seed, the episode and the number of the step alone."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class SampledAnswer:
    """A `Choice` of tokens, and what it drew: `ids`, the log-probability of each, and the `entropies` (nats) of the
    distributions they were drawn from, all at the temperature."""

    temperature: float
    rng: random.Random
    ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    def __call__(self, tokens: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
        scores = torch.log_softmax(logits().float() / self.temperature, -1).cpu()
        probabilities = scores.exp()
        cumulative = probabilities.double().cumsum(0)
        place = torch.searchsorted(cumulative, self.rng.random() * cumulative[-1], right=True)
        token = min(int(place), len(scores) - 1)
        self.ids.append(token)
        self.log_probabilities.append(float(scores[token]))
        self.entropies.append(-float((probabilities * scores.clamp(min=-1e4)).sum()))
        return token


@dataclass
class Sampling:
    """The choices of an agent that samples. A `seed` and a step of an episode always draw the same numbers.

    `keeps`: whether choices are kept in `answers`, by (episode, step): some 5 kB each.
    """

    temperature: float
    seed: str
    keeps: bool = True
    answers: dict[tuple[str, int], SampledAnswer] = field(default_factory=dict)

    def of_step(self, episode: str, step: int) -> SampledAnswer:
        rng = random.Random(f"{self.seed}/{episode}/{step}")  # noqa: S311 (no secret)
        answer = SampledAnswer(self.temperature, rng)
        if self.keeps:
            self.answers[episode, step] = answer
        return answer
