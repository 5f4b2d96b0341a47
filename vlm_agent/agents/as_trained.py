"""The conversation of a run's training, as messages for a chat endpoint.

    system     the system turn of the chat template
    user       the goal, and the first screen
    assistant  the first action
    user       the next screen
    …

With `data.coat`, the lines that are read precede each screen, and the thoughts precede each action. The references of
`data.references` follow the goal, then, with `data.past_screens`, the steps in words. A text model has goal, references
and words as messages of the system, and each screen as HTML (`sentences/html.py`). Each of its lines is a message,
because training tokenises it alone. Plans of `data.plan` stand where they do in training.

All earlier screens that the model reads are sent, resized as in training, so that the image processor of the server
does not resize them again with another filter (`_sent_pixels`).
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from vlm_agent.agents.agent import Turn, episode_of
from vlm_agent.episodes import Screen
from vlm_agent.errors import UserError
from vlm_agent.png import encode_png
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.trajectory import TrajectorySentences

NO_ELEMENTS = (
    "a text model reads the elements of the screen, and this source has none; choose a source with elements, such as "
    "adb or simulated, or a model with vision"
)


def trained_messages(
    sentences: TrajectorySentences, goal: str, history: Sequence[Turn], screen: Screen
) -> list[dict[str, Any]]:
    """The messages up to the current screen.

    Raises UserError for a model without chat turns, for screens without pixels, and for a text model for a screen
    without elements.
    """
    template = sentences.template
    if template.system is None and not sentences.as_html:
        raise UserError("this kind of model was not trained on chat turns, so no chat endpoint can serve it as trained")
    if sentences.as_html and screen.elements is None:
        raise UserError(NO_ELEMENTS)
    shown = 0 if sentences.past is None else sentences.past.first_shown(len(history))
    episode = episode_of(goal, history, screen, bool(sentences.thoughts.parts.read))
    references = sentences.references.lines(goal, episode.id)
    before = [template.goal.format(goal=goal), *references, *sentences.lines_before(episode, len(history))]
    system = before if sentences.as_html else [template.system]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in system]
    opening = "" if sentences.as_html else "".join(before)
    for number, step in list(enumerate(episode.steps))[shown:]:
        thoughts, is_past = sentences.thoughts, number < len(history)
        lines = [*thoughts.read(sentences.texts_at(episode, number)), *thoughts.plans.read(step.plan, is_past)]
        if sentences.as_html:
            messages += [{"role": "user", "content": line} for line in lines]
            lines = []
        messages.append(_screen_message(sentences, opening + "".join(lines), step.screen))
        written = "".join([*thoughts.plans.learned(step.plan, is_past=True), *thoughts.learned(step.coat)])
        messages.append({"role": "assistant", "content": written + sentences.language.encode(step.action, step.screen)})
        opening = ""
    return messages[:-1]


def image_part(pixels: np.ndarray) -> dict[str, Any]:
    """A screen, uint8 (height, width, 3), as a content part of a message: a PNG in a data URL."""
    url = f"data:image/png;base64,{base64.b64encode(encode_png(pixels)).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _screen_message(sentences: TrajectorySentences, opening: str, screen: Screen) -> dict[str, Any]:
    if sentences.as_html:
        return {"role": "user", "content": opening + sentences.html(screen)}
    if screen.pixels is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    text = [{"type": "text", "text": opening}] if opening else []
    return {"role": "user", "content": [*text, image_part(_sent_pixels(sentences.screens, screen.pixels))]}


def _sent_pixels(screens: ScreenRule, pixels: np.ndarray) -> np.ndarray:
    """The screen as training resized it, uint8 (height, width, 3); the screen itself where a server would resize that
    again, because a strip becomes smaller whenever it is fitted."""
    prepared = np.ascontiguousarray(screens.prepare(pixels).transpose(1, 2, 0))
    return prepared if screens.fitted(*prepared.shape[:2]) == prepared.shape[:2] else pixels
