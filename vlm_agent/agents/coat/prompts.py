"""The prompts of agent `coat`, read from a YAML file, and the messages that they become."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from vlm_agent.agents.as_trained import image_part
from vlm_agent.errors import UserError
from vlm_agent.recipe.yaml_file import read_mapping, validated
from vlm_agent.settings import Section

PROMPTS = Path(__file__).with_name("prompts.yaml")

Mode = Literal["coa", "cot", "coat"]
Click = Literal["text", "marks", "box"]

_PLACEHOLDERS: dict[str, set[str]] = {
    "system": {"form", "click"},
    "compare": {"action"},
    **{name: {name} for name in ("goal", "types", "actions", "result", "description", "elements")},
}
"""The placeholders of each text; the others have none."""


class PromptError(UserError):
    """A file of prompts that cannot be used; the message names file and key."""


class Prompts(Section):
    """The keys of `prompts.yaml`, which explains them."""

    system: str
    forms: dict[Mode, str]
    clicks: dict[Click, str]
    goal: str
    types: str
    actions: str
    result: str
    description: str
    elements: str
    question: str
    describe: str
    compare: str

    @model_validator(mode="after")
    def _complete(self) -> "Prompts":
        for name, keys in (("forms", Mode), ("clicks", Click)):
            if missing := set(keys.__args__) - set(getattr(self, name)):  # type: ignore[attr-defined]
                raise ValueError(f"{name} lacks {', '.join(sorted(missing))}")
        for name, expected in _PLACEHOLDERS.items():
            template = Template(getattr(self, name))
            if not template.is_valid() or set(template.get_identifiers()) != expected:
                names = " and ".join(f"${one}" for one in sorted(expected))
                raise ValueError(f"{name} must have {names}, and no other placeholder; write $$ for a dollar sign")
        return self

    def fill(self, name: str, **texts: str) -> str:
        """The text `name` with its placeholders replaced; the texts themselves are not searched for placeholders."""
        return Template(getattr(self, name)).substitute(texts)

    def paragraphs(self, texts: Mapping[str, str]) -> str:
        """A paragraph for each of `texts` that is not empty, in their order."""
        return "\n\n".join(self.fill(name, **{name: text}) for name, text in texts.items() if text)


def read_prompts(path: Path = PROMPTS) -> Prompts:
    """Raises PromptError if the file cannot be read, or lacks or misspells a key."""
    return validated(Prompts, read_mapping(path, PromptError), str(path), PromptError)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str, pictures: Sequence[np.ndarray]) -> dict[str, Any]:
    """`pictures`: uint8 (height, width, 3) each."""
    return {"role": "user", "content": [{"type": "text", "text": text}, *map(image_part, pictures)]}
