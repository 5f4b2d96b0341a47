"""The prompts for the texts that a model writes, from the files in `templates/` or in a folder of the user.

| file             | placeholders                        | pictures                                    |
|------------------|-------------------------------------|---------------------------------------------|
| `screen.txt`     |                                     | the screen                                  |
| `touched.txt`    |                                     | the screen with the touched element marked  |
| `think.txt`      | `$goal $earlier $screen $action`    | the screen                                  |
| `result.txt`     | `$action`                           | the screens before and after the action     |
| `plan.txt`       | `$goal $earlier $screen $action`    | the screen, unless it is shown as HTML only |
| `plan_again.txt` | `$reason`                           |                                             |

The last two are read only where a plan is written. Only the prompts for thought and plan have the goal. The description
of a screen must not depend on it. The result must not say that the goal is reached: it is an input of the next step.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np
from PIL import Image

from vlm_agent.agents.llm.prompts import numbered_lines, user
from vlm_agent.drawing.actions import draw_touched
from vlm_agent.episodes import Step
from vlm_agent.errors import UserError
from vlm_agent.sentences.html import screen_html
from vlm_agent.texts.lines import one_line

TEMPLATES = Path(__file__).with_name("templates")

_PLACEHOLDERS = {
    "screen": frozenset[str](),
    "touched": frozenset[str](),
    "think": frozenset(("goal", "earlier", "screen", "action")),
    "result": frozenset(("action",)),
}

_PLAN_PLACEHOLDERS = {"plan": _PLACEHOLDERS["think"], "plan_again": frozenset(("reason",))}

Messages = list[dict[str, Any]]
ScreenForm = Literal["html", "picture", "both"]


class Prompts:
    """`shown`: the screen in requests for a plan, as HTML, as a picture, or both; None if no plan is written.

    Raises UserError for a folder without one of the files, and for a file with an unknown placeholder.
    """

    def __init__(self, folder: Path = TEMPLATES, shown: ScreenForm | None = None) -> None:
        texts = _texts(folder, _PLACEHOLDERS)
        plan_texts = {} if shown is None else _texts(folder, _PLAN_PLACEHOLDERS)
        self._shown = shown
        self._templates = {name: Template(text) for name, text in (texts | plan_texts).items()}
        self.digest = _digest(texts.values())
        self.plan_digest = None if shown is None else _digest([*plan_texts.values(), shown])

    def screen(self, step: Step) -> Messages:
        """Asks for the description of a screen. The goal is not in the request."""
        return self._messages("screen", {}, [_pixels(step)])

    def touched(self, step: Step) -> Messages:
        """Asks for words for the element that a tap or long press touches."""
        marked = draw_touched(Image.fromarray(_pixels(step)), step.action, step.elements)
        return self._messages("touched", {}, [np.asarray(marked)])

    def think(self, goal: str, earlier: Sequence[str], step: Step, screen: str, action: str) -> Messages:
        """Asks for the thought that leads to `action`. `earlier`: descriptions of the actions before, oldest first."""
        return self._messages("think", _values(goal, earlier, screen or "none", action), [_pixels(step)])

    def result(self, before: Step, after: Step, action: str) -> Messages:
        """Asks what `action` changed between two screens."""
        return self._messages("result", {"action": action}, [_pixels(before), _pixels(after)])

    def plan(self, goal: str, earlier: Sequence[str], step: Step, action: str) -> Messages:
        """Asks for plan and step. `earlier`: the steps before, oldest first; like `action`, this step's, in words. No
        later screen is shown."""
        notes, pictures = [], []
        if self._shown != "picture":
            html = screen_html(step.screen).strip() or "none are known"
            notes.append(f"The elements of the current screen:\n{html}")
        if self._shown != "html":
            picture = Image.fromarray(_pixels(step))
            notes.append("The picture is the current screen.")
            if step.action.is_touch:
                picture = draw_touched(picture, step.action, step.elements)
                notes.append("What the finger touches next is marked in magenta; do not mention the mark.")
            pictures.append(np.asarray(picture))
        return self._messages("plan", _values(goal, earlier, "\n\n".join(notes), action), pictures)

    def plan_again(self, reason: str) -> Messages:
        """Asks for a reply that can be read. `reason`: why the last one cannot."""
        return self._messages("plan_again", {"reason": reason}, [])

    def _messages(self, name: str, values: Mapping[str, str], pictures: Sequence[np.ndarray]) -> Messages:
        return [user(self._templates[name].substitute(values), pictures)]


def _values(goal: str, earlier: Sequence[str], screen: str, action: str) -> dict[str, str]:
    return {"goal": one_line(goal), "earlier": numbered_lines(earlier) or "none", "screen": screen, "action": action}


def _texts(folder: Path, placeholders: Mapping[str, frozenset[str]]) -> dict[str, str]:
    return {name: _read(folder / f"{name}.txt", known) for name, known in placeholders.items()}


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _read(path: Path, known: frozenset[str]) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path} is missing; a folder of prompts needs {', '.join(f'{name}.txt' for name in _PLACEHOLDERS)}, and "
            f"for a plan {', '.join(f'{name}.txt' for name in _PLAN_PLACEHOLDERS)}"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from None
    template = Template(text)
    unknown = sorted(set(template.get_identifiers()) - known)
    if unknown or not template.is_valid():
        wrong = f"the placeholder ${unknown[0]} is unknown" if unknown else "a $ is not followed by a placeholder"
        known_ones = ", ".join(f"${name}" for name in sorted(known)) or "none"
        raise UserError(f"{path}: {wrong}; this prompt has {known_ones}, and $$ is a dollar sign")
    return text


def _pixels(step: Step) -> np.ndarray:
    if step.screenshot is None:
        raise ValueError("the step was read without pixels")
    return step.screenshot
