"""Segments as messages of a chat, for servers and for the model card.

    system     the system turn of the chat template
    user       the goal, and the first screen
    assistant  the first action
    user       the next screen
    …

Notes stand where they do in training. The references of `data.references` follow the goal, then, with
`data.past_screens`, the steps in words. A text model has goal, references and words as messages of the system, and each
screen as HTML (`html.py`). Each of its lines is a message, because training tokenises it alone.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import UserError
from vlm_agent.sentences.segments import ASSISTANT, SYSTEM, USER, Segment
from vlm_agent.sentences.trajectory import TrajectorySentences

ImagePart = Callable[[np.ndarray], dict[str, Any]]
"""From a screen, uint8 (height, width, 3), to its part of a message's content."""


def conversation(sentences: TrajectorySentences, episode: Episode, image_part: ImagePart) -> list[dict[str, Any]]:
    """The messages up to the screen of the last step, whose action is not part of them.

    Raises UserError for a model with vision and a screen without pixels.
    """
    segments = sentences.prompt_segments(episode)
    if sentences.as_html:
        return text_messages(segments)
    return [{"role": SYSTEM, "content": sentences.template.system}, *picture_messages(segments, image_part)]


def text_messages(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """A message for each segment that the model reads, and one for each answer."""
    messages: list[dict[str, Any]] = []
    for turn, group in groupby((each for each in segments if each.turn), key=lambda each: each.turn):
        contents = [segment.text or "" for segment in group]
        messages += [
            {"role": turn, "content": content} for content in (["".join(contents)] if turn == ASSISTANT else contents)
        ]
    return messages


def picture_messages(segments: Iterable[Segment], image_part: ImagePart) -> list[dict[str, Any]]:
    """A message for each turn; the goal and what follows it belong to the user's first one."""
    turns = ((ASSISTANT if each.turn == ASSISTANT else USER, each) for each in segments if each.turn)
    messages: list[dict[str, Any]] = []
    for turn, group in groupby(turns, key=lambda pair: pair[0]):
        of_turn = [segment for _, segment in group]
        text = "".join(segment.text or "" for segment in of_turn)
        if turn == ASSISTANT:
            messages.append({"role": turn, "content": text})
            continue
        pictures = [image_part(_pixels(segment.screen)) for segment in of_turn if segment.screen is not None]
        messages.append({"role": turn, "content": [*([{"type": "text", "text": text}] if text else []), *pictures]})
    return messages


def answer(sentences: TrajectorySentences, step: Step) -> str:
    """The text that the model writes at the first step of an episode."""
    segments = sentences.segments(Episode("", "", "", (step,)), with_unwritable=True)
    return "".join(segment.text or "" for segment in segments if segment.turn == ASSISTANT)


def _pixels(screen: Step) -> np.ndarray:
    if screen.screenshot is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    return screen.screenshot
