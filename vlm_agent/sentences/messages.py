"""The sentence of an episode as messages of a chat, for servers and for the model card.

    system     the system turn of the chat template
    user       the goal, and the first screen
    assistant  the first action
    user       the next screen
    …

With `data.coat`, the lines that are read precede each screen, and the thoughts precede each action. The references of
`data.references` follow the goal, then, with `data.past_screens`, the steps in words. A text model has goal, references
and words as messages of the system, and each screen as HTML (`html.py`). Each of its lines is a message, because
training tokenises it alone. Plans of `data.plan` stand where they do in training.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vlm_agent.episodes import Episode, Screen, Step
from vlm_agent.errors import UserError
from vlm_agent.sentences.trajectory import TrajectorySentences

ImagePart = Callable[[np.ndarray], dict[str, Any]]
"""From a screen, uint8 (height, width, 3), to its part of a message's content."""


def conversation(sentences: TrajectorySentences, episode: Episode, image_part: ImagePart) -> list[dict[str, Any]]:
    """The messages up to the screen of the last step, whose action is not part of them.

    Raises UserError for a model with vision and a screen without pixels.
    """
    last = len(episode) - 1
    shown = 0 if sentences.past is None else sentences.past.first_shown(last)
    references = sentences.references.lines(episode.goal, episode.id)
    before = [sentences.template.goal.format(goal=episode.goal), *references, *sentences.lines_before(episode, last)]
    system = before if sentences.as_html else [sentences.template.system]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in system]
    opening = "" if sentences.as_html else "".join(before)
    for number, step in list(enumerate(episode.steps))[shown:]:
        thoughts, is_past = sentences.thoughts, number < last
        lines = [*thoughts.read(sentences.texts_at(episode, number)), *thoughts.plans.read(step.notes, is_past)]
        if sentences.as_html:
            messages += [{"role": "user", "content": line} for line in lines]
            lines = []
        messages.append(_screen_message(sentences, opening + "".join(lines), step.screen, image_part))
        messages.append({"role": "assistant", "content": answer(sentences, step, is_past=True)})
        opening = ""
    return messages[:-1]


def answer(sentences: TrajectorySentences, step: Step, is_past: bool = False) -> str:
    """The text that the model writes at a step. `is_past`: without the plan, as earlier steps have it."""
    thoughts = sentences.thoughts
    before = [*thoughts.plans.learned(step.notes, is_past), *thoughts.learned(step.notes)]
    return "".join(before) + sentences.language.encode(step.action, step.screen)


def _screen_message(
    sentences: TrajectorySentences, opening: str, screen: Screen, image_part: ImagePart
) -> dict[str, Any]:
    if sentences.as_html:
        return {"role": "user", "content": opening + sentences.html(screen)}
    if screen.pixels is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    text = [{"type": "text", "text": opening}] if opening else []
    return {"role": "user", "content": [*text, image_part(screen.pixels)]}
