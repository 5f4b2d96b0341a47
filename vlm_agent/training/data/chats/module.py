"""The data module of a run on chats, which needs no shards."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary, build_tokenizer
from vlm_agent.recipe.run import ValidationRecipe
from vlm_agent.sentences.html import SCREEN_PHRASES
from vlm_agent.training.data.chats.reading import Chats
from vlm_agent.training.data.chats.sentences import MARKS, with_turns
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.data.stream import RowStream


@dataclass(frozen=True)
class ChatDataModule(ShardDataModule):
    """`shards` are the chats, and an episode is the number of a chat."""

    @cached_property
    def shards(self) -> Chats:  # type: ignore[override]
        return Chats(Path(str(self.recipe.data.chats)))

    @cached_property
    def episodes(self) -> list[int]:
        return list(range(len(self.shards)))[: self.recipe.data.limit]

    @property
    def manifest(self) -> None:  # type: ignore[override]
        return None

    @property
    def data_digest(self) -> str:
        return hashlib.sha256(b"chats" + self.shards.digest().encode()).hexdigest()

    @property
    def learned_ids(self) -> None:
        """Chats do not name the episodes that they were written from."""

    @property
    def reads(self) -> str:
        return f"{len(self.episodes)} chats"

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return with_turns(build_tokenizer(self.recipe.model, self.vocabulary()))

    def vocabulary(self) -> Vocabulary:
        language = self.recipe.action_language.build().vocabulary()
        texts = (message["content"] for number in self.episodes for message in self.shards[number].messages)
        return Vocabulary(replace(language, phrases=(*language.phrases, *SCREEN_PHRASES, *MARKS)), texts)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        raise RecipeError("chats have no splits to validate on; remove training.validation")
