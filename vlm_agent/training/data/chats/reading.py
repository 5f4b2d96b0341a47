"""Chats as training data: JSON lines in a file, or in all `*.jsonl` files of a folder.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}

A line may also be the list alone. The last message is the assistant's, and supervised; the others are read.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vlm_agent.errors import RecipeError

ROLES = ("system", "user", "assistant")
MOST_BYTES = 1_000_000
"""The limit of a line. A longer one is an error: a chat of this length fits no model here."""

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Chat:
    """`where`: file and line, for messages."""

    where: str
    messages: Messages


@dataclass(frozen=True)
class Chats(Sequence[Chat]):
    """The chats of a file or folder, files in order of their names, lines in their own."""

    path: Path

    @cached_property
    def files(self) -> list[Path]:
        """Raises RecipeError if there are none."""
        found = sorted(self.path.glob("*.jsonl")) if self.path.is_dir() else [self.path]
        found = [file for file in found if file.is_file()]
        if not found:
            raise RecipeError(
                f"data.chats: {self.path} is neither a file of JSON lines nor a folder with *.jsonl files"
            )
        return found

    @cached_property
    def _all(self) -> list[Chat]:
        chats = [chat for file in self.files for chat in _read(file)]
        if not chats:
            raise RecipeError(f"data.chats: {self.path} has no chat")
        return chats

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number):  # noqa: ANN001, ANN204 (as a list's)
        return self._all[number]

    def digest(self) -> str:
        """sha256 of all files."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


def _read(file: Path) -> Iterator[Chat]:
    with file.open("rb") as lines:
        number = 0
        while line := lines.readline(MOST_BYTES + 2):
            number += 1
            where = f"{file} line {number}"
            if len(line.rstrip(b"\r\n")) > MOST_BYTES:
                raise RecipeError(f"{where} is longer than {MOST_BYTES:,} bytes; split the chat, or remove it")
            if line.strip():
                yield Chat(where, _messages(line, where))


def _messages(line: bytes, where: str) -> Messages:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{where} is not JSON: {error}") from None
    messages = content.get("messages") if isinstance(content, dict) else content
    if not isinstance(messages, list) or not messages:
        raise RecipeError(f'{where} needs a list of messages: {{"messages": [{{"role": …, "content": …}}, …]}}')
    for place, message in enumerate(messages):
        _check(message, f"{where}, message {place}")
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise RecipeError(f"{where}: the last message must be the assistant's, after at least one other")
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _check(message: object, where: str) -> None:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise RecipeError(f"{where} needs a role, one of {', '.join(ROLES)}")
    content = message.get("content")
    if not isinstance(content, str):
        raise RecipeError(f"{where} needs content, a text; pictures cannot be trained on as chats")
    if message["role"] == "assistant" and not content.strip():
        raise RecipeError(f"{where} of the assistant is empty")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise RecipeError(f"{where} has a lone surrogate, which no tokenizer can write") from None
