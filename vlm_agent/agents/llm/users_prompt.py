"""A prompt that the user supplies, as released agents need it: their own wording is not part of this package.

    system: You are a helpful assistant. The screen has $width x $height pixels.
    user: |
      The user query: $goal
      $calls

| placeholder         | text                                                                                   |
|---------------------|----------------------------------------------------------------------------------------|
| `$goal`             | the goal                                                                               |
| `$instruction`      | the instruction of this one step; an error where the step has none                     |
| `$calls`            | earlier actions as the action language writes them, a line `Step 1: …` each            |
| `$steps`            | earlier steps in words: the step's instruction, the agent's description, or the action |
| `$width`, `$height` | size of the picture as the action language counts it; an error where it is unknown     |

A prompt has `$goal` or `$instruction`. $$ is a dollar sign. The screen follows the text. With `past_screens`, the last
screens are turns of the chat with their answers, and `$calls` and `$steps` have the steps before them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any, Self

from pydantic import field_validator, model_validator

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Turn
from vlm_agent.agents.llm.prompts import PromptError, assistant, pixels_of, system, turn_in_words, user
from vlm_agent.episodes import Screen
from vlm_agent.recipe.yaml_file import read_mapping, validated
from vlm_agent.settings import Section

KNOWN = ("goal", "instruction", "calls", "steps", "width", "height")
_KNOWN = "placeholders are " + ", ".join(f"${name}" for name in KNOWN)


class UsersPrompt(Section):
    """The content of the file: `system` may be empty, which sends no such message."""

    system: str = ""
    user: str

    @field_validator("system", "user")
    @classmethod
    def _known(cls, text: str) -> str:
        template = Template(text)
        if not template.is_valid():
            raise ValueError(f"a dollar sign is written $$; {_KNOWN}")
        if unknown := [name for name in template.get_identifiers() if name not in KNOWN]:
            raise ValueError(f"${unknown[0]} is unknown; {_KNOWN}")
        return text

    @model_validator(mode="after")
    def _has_a_task(self) -> Self:
        if not self.names & {"goal", "instruction"}:
            raise ValueError(f"$goal or $instruction is missing; {_KNOWN}")
        return self

    @property
    def names(self) -> set[str]:
        """The placeholders in both texts."""
        return {name for text in (self.system, self.user) for name in Template(text).get_identifiers()}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises PromptError if the file cannot be read, or a placeholder is unknown or missing."""
        return validated(cls, read_mapping(path, PromptError), str(path), PromptError)

    def messages(
        self, goal: str, history: Sequence[Turn], screen: Screen, past_screens: int, language: ActionLanguage
    ) -> list[dict[str, Any]]:
        """The messages up to the current screen. Raises PromptError if the step lacks what the prompt shows."""
        older = max(len(history) - past_screens, 0)
        past = history[:older]
        texts: dict[str, Callable[[], str]] = {
            "goal": lambda: goal.encode("utf-8", "replace").decode(),  # no request holds a lone surrogate
            "instruction": lambda: _instruction(screen),
            "calls": lambda: _lines([language.encode(turn.action, turn.screen) for turn in past]),
            "steps": lambda: _lines([turn.screen.instruction or turn_in_words(turn) for turn in past]),
            "height": lambda: str(_picture(language, screen)[0]),
            "width": lambda: str(_picture(language, screen)[1]),
        }
        filled = {name: texts[name]() for name in self.names}
        messages = [system(Template(self.system).substitute(filled))] if self.system else []
        text = Template(self.user).substitute(filled)
        for turn in history[older:]:
            messages += [_shown(text, turn.screen), assistant(language.encode(turn.action, turn.screen))]
            text = ""
        return [*messages, _shown(text, screen)]


def _shown(text: str, screen: Screen) -> dict[str, Any]:
    """A message of the user; only the first has a text."""
    message = user(text, [pixels_of(screen)])
    return message if text else message | {"content": message["content"][1:]}


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(f"Step {number}: {text}" for number, text in enumerate(texts, 1))


def _instruction(screen: Screen) -> str:
    if not screen.instruction:
        raise PromptError("the prompt has $instruction, and this step has none; use $goal, or data with instructions")
    return screen.instruction


def _picture(language: ActionLanguage, screen: Screen) -> tuple[int, int]:
    size = language.picture_size(screen)
    if size is None:
        raise PromptError("the prompt has $width or $height, and the size of this screen is unknown; remove them")
    return size
