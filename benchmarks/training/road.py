"""One of our methods in a new process: (a) `step_samples`, (b) `padded`, (c) `packed`.

The time runs from an episode in memory to the updated weights: building the sentence, preparing its screens, collating,
forward, backward, update. It excludes imports, building the model, and a warm-up step on one-step episodes.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import torch
from accelerate.utils import send_to_device

import vlm_agent  # noqa: F401 (makes torchvision importable)
from benchmarks.training import packed, padded
from benchmarks.training.episodes import read_episodes
from benchmarks.training.measure import (
    BETAS,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    WEIGHT_DECAY,
    Clock,
    make_parser,
    peak_resident,
    save_gradients,
)
from benchmarks.training.models import build, timed_modules
from benchmarks.training.shapes import Shape, shape_named
from benchmarks.training.stopwatch import Stopwatch
from benchmarks.training.words import read_tokenizer, special_ids
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.episodes import Episode
from vlm_agent.models.family import processor_of
from vlm_agent.sentences import Sentence

ROADS = {
    "step_samples": (padded, padded.one_sample_a_step),
    "padded": (padded, padded.whole_trajectories),
    "packed": (packed, padded.whole_trajectories),
}
"""road → what prepares the model, collates and gives the loss; and how sentences are grouped into forward passes."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--road", choices=ROADS, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = shape_named(options.shape, options.vocabulary)
    run = Run(shape, *ROADS[options.road], read_tokenizer(options.data / "tokenizer"))
    episodes = read_episodes(options.data)
    held = peak_resident()
    run.step([replace(episode, steps=episode.steps[:1]) for episode in episodes[: shape.batch]], learning_rate=0.0)
    run.start_anew()
    clock, losses = Clock(), []
    for number in range(options.steps):
        chosen = [episodes[(number * shape.batch + place) % len(episodes)] for place in range(shape.batch)]
        run.stopwatch.skip()
        with clock:
            losses.append(run.step(chosen))
        if number == 0:
            save_gradients(run.model, options.gradients)
        run.optimizer.zero_grad()
    done = {"losses": losses, "parts": dict(run.stopwatch.seconds), "peak_bytes": peak_resident(), "model_bytes": held}
    print(json.dumps(vars(run.counts) | vars(clock) | done))


class Run:
    """A model, how it is fed, and its optimiser. `counts`: what all steps since `start_anew` have computed, `positions`
    with padding, `tokens` without, of them `supervised`, in so many `actions`. `parts`: time those of each step, which
    only means something on a CPU.
    """

    def __init__(
        self,
        shape: Shape,
        road: ModuleType,
        group,
        tokenizer,
        device: str = "cpu",
        dtype=torch.float32,
        parts=True,
        quantisation=None,
    ):
        self.shape, self.road, self.group, self.special = shape, road, group, special_ids(tokenizer)
        self.device, self.dtype = device, dtype
        self.model = build(shape, self.special, road.model_class(shape), device, dtype, quantisation)
        road.prepare(self.model)
        self.processor = processor_of(self.model.get_base_model().config)
        self.writer = self.processor.sentences(tokenizer, BinnedLanguage())
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, BETAS, weight_decay=WEIGHT_DECAY)
        self.stopwatch = Stopwatch()
        if parts:
            self.stopwatch.watch(self.model, *timed_modules(self.model, shape))
        self.start_anew()

    def start_anew(self) -> None:
        self.optimizer.zero_grad()
        self.counts = SimpleNamespace(positions=0, tokens=0, supervised=0, actions=0)
        self.stopwatch.restart()

    def step(self, episodes: list[Episode], learning_rate: float = LEARNING_RATE) -> float:
        """One update; leaves the clipped gradients where they are. Returns the loss a supervised token."""
        return self.update(*self.batches(episodes), learning_rate)

    def batches(self, episodes: list[Episode]) -> tuple[Iterator[dict[str, torch.Tensor]], int]:
        """The batches of one update, collated lazily, and the number of supervised tokens in all of them."""
        sentences = [self.writer.build(episode) for episode in episodes]
        self.counts.actions += sum(map(len, episodes))
        batches = (self._collated(some) for some in self.group(sentences, self.shape.batch))
        return batches, sum(sentence.supervised for sentence in sentences)

    def update(
        self, batches: Iterable[dict[str, torch.Tensor]], items: int, learning_rate: float = LEARNING_RATE
    ) -> float:
        total = 0.0
        for batch in batches:
            loss = self.loss(send_to_device(batch, self.device, non_blocking=True), items)
            loss.backward()
            total += loss.item()
            self.stopwatch.lap("decoder")
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.stopwatch.lap("update")
        return total

    def loss(self, batch: dict[str, torch.Tensor], items: int) -> torch.Tensor:
        """In mixed precision where the frozen weights are in half precision."""
        mixed = self.dtype != torch.float32
        with torch.autocast(self.device, self.dtype if mixed else None, enabled=mixed):
            return self.road.loss(self.model, batch, items)

    def _collated(self, sentences: list[Sentence]) -> dict[str, torch.Tensor]:
        batch = self.road.collate(sentences, self.processor, self.special)
        self.counts.positions += batch["input_ids"].numel()
        self.counts.tokens += sum(map(len, sentences))
        self.counts.supervised += sum(sentence.supervised for sentence in sentences)
        return batch


if __name__ == "__main__":
    main()
