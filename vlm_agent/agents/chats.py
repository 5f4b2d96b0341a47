"""Chats for training (`data.chats`): what a text model has to reply to the prompts of an agent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.console import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.agents.agent import AgentSettings

Chat = list[dict[str, Any]]
"""Messages with a role and a text as content each; the last one is the assistant's reply."""


class Episodes(Protocol):
    """Episodes with their screens, read one at a time."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Episode: ...


def chat_of(messages: Sequence[Mapping[str, Any]], reply: str) -> Chat:
    return [*map(dict, messages), {"role": "assistant", "content": reply}]


def write_chats(path: Path, settings: "AgentSettings", dataset: Episodes, limit: int | None, console: "Console") -> int:
    """Writes JSON lines, a chat each, of at most `limit` episodes spread evenly over `dataset`; returns their number.

    Raises DatasetError without an episode, and every error of `AgentSettings.chats`.
    """
    episodes = len(dataset) if limit is None else min(limit, len(dataset))
    if not episodes:
        raise DatasetError("the split has no episode; choose another --split")
    written = 0
    with (
        Progress(console, episodes, "episodes").shown() as progress,
        atomic_write(path) as part,
        part.open("w", encoding="utf-8") as file,
    ):

        def read() -> Iterator[Episode]:
            for number in range(episodes):
                yield dataset[number * len(dataset) // episodes]
                progress.advance(1, "writing")

        for messages in settings.chats(read()):
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            written += 1
    console.print(f"{path}: {written:,} chats of {episodes:,} episodes", highlight=False, markup=False)
    return written
