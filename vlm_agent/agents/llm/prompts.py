"""Files of prompts, and the messages of a chat that prompts become. Shared by the agents that prompt a served model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Self, get_args, get_origin

import numpy as np
from pydantic import model_validator

from vlm_agent.agents.agent import NOT_PERFORMED, Turn
from vlm_agent.agents.as_trained import image_part
from vlm_agent.episodes import Screen
from vlm_agent.errors import UserError
from vlm_agent.recipe.yaml_file import read_mapping, validated
from vlm_agent.settings import Section
from vlm_agent.texts.actions import action_in_words
from vlm_agent.texts.lines import printable, without_tags


class PromptError(UserError):
    """A file of prompts that cannot be used; the message names file and key."""


class PromptFile(Section):
    """The texts of a YAML file. $NAME in a text stands for what the agent fills in; $$ is a dollar sign.

    A field `dict[Literal[…], str]` has a text for each of its names. A text that may be missing is None then.
    """

    PLACEHOLDERS: ClassVar[Mapping[str, set[str]]] = {}
    """The placeholders of each text; texts that are not listed have none, and are used as they are."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        for name, expected in self.PLACEHOLDERS.items():
            if getattr(self, name) is None:
                continue
            template = Template(getattr(self, name))
            if not template.is_valid() or set(template.get_identifiers()) != expected:
                names = " and ".join(f"${one}" for one in sorted(expected))
                raise ValueError(f"{name} must have {names}, and no other placeholder; write $$ for a dollar sign")
        for name in set(type(self).model_fields) - set(self.PLACEHOLDERS):
            value = getattr(self, name)
            for text in value.values() if isinstance(value, dict) else [value]:
                if found := Template(text or "").get_identifiers():
                    raise ValueError(f"nothing is filled into {name}; remove ${found[0]}")
        for name, field in type(self).model_fields.items():
            if get_origin(field.annotation) is not dict:
                continue
            keys = get_args(get_args(field.annotation)[0])
            if missing := set(keys) - set(getattr(self, name)):
                raise ValueError(f"{name} lacks {', '.join(sorted(missing))}")
        return self

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises PromptError if the file cannot be read, or lacks or misspells a key."""
        return validated(cls, read_mapping(path, PromptError), str(path), PromptError)

    def fill(self, name: str, **texts: str) -> str:
        """The text `name` with its placeholders replaced; the texts themselves are not searched for placeholders."""
        return Template(getattr(self, name)).substitute(texts)

    def paragraphs(self, texts: Mapping[str, str]) -> str:
        """A paragraph for each of `texts` that is not empty, in their order."""
        return "\n\n".join(self.fill(name, **{name: text}) for name, text in texts.items() if text)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str, pictures: Sequence[np.ndarray] = ()) -> dict[str, Any]:
    """`pictures`: uint8 (height, width, 3) each. Without one the content is a string, which text models require."""
    content = [{"type": "text", "text": text}, *map(image_part, pictures)] if pictures else text
    return {"role": "user", "content": content}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def pixels_of(screen: Screen) -> np.ndarray:
    """uint8 (height, width, 3). Raises UserError for a screen without pixels."""
    if screen.pixels is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    return screen.pixels


def numbered_lines(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def turn_in_words(turn: Turn) -> str:
    """The description of an earlier action: recorded, or by the agent, else by a template. One that failed says so."""
    described = printable(turn.notes.get("action", ""))
    return with_failure(without_tags(described) or action_in_words(turn.action, turn.screen), turn)


def with_failure(line: str, turn: Turn) -> str:
    """The line on an earlier action, and whether the phone refused it."""
    return f"{line} ({NOT_PERFORMED})" if turn.failed else line
