"""Sentences about the elements of single screens (`sentences/elements.py`)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences, label_elements
from vlm_agent.training.data.sentence_kinds.kind import EMPTY_CELLS_NAMED, SentenceKind
from vlm_agent.training.data.stream import Item


class ElementKind(SentenceKind):
    """One sentence an episode, about a screen that is drawn at random."""

    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> list[Item]:
        return [Item(episode) for episode in episodes]

    def writer(self, shards: ShardDataset) -> "Elements":
        sentences = ElementSentences(self.run.sentences)
        return Elements(shards, sentences, self.run.label_grid())


@dataclass(frozen=True)
class Elements:
    """Sentences about the elements of one screen of an episode, drawn at random."""

    shards: ShardDataset
    sentences: ElementSentences
    grid: tuple[int, int] | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        number = rng.randrange(len(self.shards.screen_sizes[item.episode]))
        step = self.shards.step(item.episode, number)
        sentence = self.sentences.build(step, rng)
        sentence.about = f"{self.shards.ids[item.episode]} screen {number}"
        if self.grid:
            labels = label_elements(step, self.grid, self.sentences.trajectory, EMPTY_CELLS_NAMED, rng)
            sentence.element_labels = [labels]
        return sentence
