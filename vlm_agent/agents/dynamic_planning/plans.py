"""Plans from a file, in place of planning calls: JSON, episode id → steps in words, one for each action.

{"general/123": ["Open the clock app", "Click on the tab Alarm", "Declare the task complete"]}
"""

import json
from pathlib import Path

from vlm_agent.errors import UserError
from vlm_agent.sentences.html import one_line


class PlansError(UserError):
    """A file of plans that cannot be used; the message names file and episode."""


def read_plans(path: Path) -> dict[str, tuple[str, ...]]:
    """Raises PlansError for anything but texts by episode."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise PlansError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise PlansError(f"{path} is not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise PlansError(f"{path} must hold an object: episode id → list of steps")
    return {episode: _steps(steps, f"{path}: episode {episode}") for episode, steps in content.items()}


def _steps(steps: object, where: str) -> tuple[str, ...]:
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step.strip() for step in steps):
        raise PlansError(f"{where} must have a list of steps, each a text that is not empty")
    return tuple(one_line(step) for step in steps)
