"""The conversation of a run's training (`sentences/messages.py`) for a chat endpoint.

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
from vlm_agent.files.png import encode_png
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.messages import conversation
from vlm_agent.sentences.trajectory import TrajectorySentences

NO_ELEMENTS = (
    "this model reads the elements of the screen, and this source has none; choose a source with elements, such as "
    "adb or simulated, or a model with vision without data.notes.html"
)


def trained_messages(
    sentences: TrajectorySentences, goal: str, history: Sequence[Turn], screen: Screen
) -> list[dict[str, Any]]:
    """The messages up to the current screen.

    Raises UserError for a model without chat turns, for screens without pixels, and for a text model for a screen
    without elements.
    """
    if sentences.template.system is None and not sentences.as_html:
        raise UserError("this kind of model was not trained on chat turns, so no chat endpoint can serve it as trained")
    if sentences.reads_elements and screen.elements is None:
        raise UserError(NO_ELEMENTS)
    episode = episode_of(goal, history, screen, sentences.notes.reads_phone)
    return conversation(sentences, episode, lambda pixels: image_part(_sent_pixels(sentences.screens, pixels)))


def image_part(pixels: np.ndarray) -> dict[str, Any]:
    """A screen, uint8 (height, width, 3), as a content part of a message: a PNG in a data URL."""
    url = f"data:image/png;base64,{base64.b64encode(encode_png(pixels)).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _sent_pixels(screens: ScreenRule, pixels: np.ndarray) -> np.ndarray:
    """The screen as training resized it, uint8 (height, width, 3); the screen itself where a server would resize that
    again, because a strip becomes smaller whenever it is fitted."""
    prepared = np.ascontiguousarray(screens.prepare(pixels).transpose(1, 2, 0))
    return prepared if screens.fitted(*prepared.shape[:2]) == prepared.shape[:2] else pixels
