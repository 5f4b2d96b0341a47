"""Chats with one supervised answer each (`training/data/chats/`)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vlm_agent.errors import RecipeError
from vlm_agent.models.cost import Workload, causal_pairs
from vlm_agent.models.family import context_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.windows import Window
from vlm_agent.training.data.chats.reading import Chats
from vlm_agent.training.data.chats.sentences import ChatSentences
from vlm_agent.training.data.sentence_kinds.kind import PassCounts, SentenceKind
from vlm_agent.training.data.stream import Item


class ChatKind(SentenceKind):
    """One sentence a chat. `shards`: the `Chats` of the run."""

    @cached_property
    def sentences(self) -> ChatSentences:
        return ChatSentences(self.run.tokenizer, self.run.recipe.data.prompt_weight)

    def items(self, shards: Any, episodes: Sequence[int]) -> list[Item]:
        """Raises RecipeError for a chat that is longer than a row, or than the model's context."""
        items = []
        for number in episodes:
            sentence = self.sentences.build(shards[number])
            for name, limit in self._limits.items():
                if limit is not None and len(sentence) > limit:
                    raise RecipeError(
                        f"{sentence.about} has {len(sentence)} tokens, over {name} ({limit}); raise it, or remove the "
                        "chat"
                    )
            items.append(Item(number, Window(0, 0, 1, len(sentence))))
        return items

    @property
    def _limits(self) -> dict[str, int | None]:
        training, data = self.run.recipe.training, self.run.recipe.data
        return {
            "training.batch_tokens": training.batch_tokens,
            "data.max_tokens": data.max_tokens,
            "the model's max_position_embeddings": context_of(self.run.config),
        }

    def writer(self, shards: Any) -> "ChatWriter":
        return ChatWriter(shards, self.sentences)

    def count_pass(self, items: Sequence[Item]) -> PassCounts:
        lengths = np.array([item.window.tokens for item in items if item.window is not None], np.int64)
        chats: Any = self.shards
        supervised = sum(self.sentences.build(chats[item.episode]).supervised for item in items)
        load = Workload(int(lengths.sum()), causal_pairs(lengths), supervised, {})
        return PassCounts(len(items), len(items), int(lengths.max()), len(items), load)


@dataclass(frozen=True)
class ChatWriter:
    chats: Chats
    sentences: ChatSentences

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        return self.sentences.build(self.chats[item.episode])
