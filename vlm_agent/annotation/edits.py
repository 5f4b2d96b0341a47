"""The edits of a review: texts that a person changed, and steps that a person accepted.

    DIR/.annotation/edits/<sha256 of the episode's id>.json

One file holds the edits of an episode, and is replaced as a whole. The final shards have the edited texts.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.annotation.annotator import TEXTS
from vlm_agent.files import parsing, read_checked, write_checked

_REMEDY = "restore it from a copy, or move it away: the edits of its episode are then lost"


@dataclass(frozen=True)
class Edit:
    """`texts`: by name (`TEXTS`), only those that were changed. `accepted`: whether the step was accepted."""

    texts: Mapping[str, str] = field(default_factory=dict)
    accepted: bool = False

    def content(self) -> dict[str, Any]:
        return {"texts": {name: self.texts[name] for name in TEXTS if name in self.texts}, "accepted": self.accepted}


EpisodeEdits = dict[int, Edit]
"""By number of the step."""


class EditStore:
    """The edits in the working folder of an annotation. One process at a time may `save`."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "edits"

    def load(self, episode_id: str) -> EpisodeEdits:
        """Raises DatasetError for a damaged file."""
        path = self._path(episode_id)
        if not path.is_file():
            return {}
        content = read_checked(path, _REMEDY)
        with parsing(path, _REMEDY):
            return {
                int(number): Edit(_texts(one["texts"]), bool(one["accepted"]))
                for number, one in content["steps"].items()
            }

    def save(self, episode_id: str, number: int, edit: Edit) -> None:
        """Stores the edit of one step; it is on disk when this returns."""
        steps = self.load(episode_id) | {number: edit}
        content = {str(step): steps[step].content() for step in sorted(steps)}
        write_checked(self._path(episode_id), {"episode": episode_id, "steps": content})

    def totals(self, episode_ids: Iterable[str]) -> tuple[int, int]:
        """The numbers of steps with a changed text, and of accepted steps."""
        edits = [edit for name in episode_ids for edit in self.load(name).values()]
        return sum(bool(edit.texts) for edit in edits), sum(edit.accepted for edit in edits)

    def digest(self, episode_ids: Iterable[str]) -> str:
        """The SHA-256 of the edits of these episodes, in order; "" without edits. `accepted` does not count."""
        changed = {
            name: texts
            for name in episode_ids
            if (texts := {step: edit.content()["texts"] for step, edit in self.load(name).items() if edit.texts})
        }
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest() if changed else ""

    def _path(self, episode_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(episode_id.encode()).hexdigest()}.json"


def _texts(content: Mapping[str, str]) -> dict[str, str]:
    if not set(content) <= set(TEXTS) or not all(isinstance(text, str) for text in content.values()):
        raise ValueError("unknown texts")
    return dict(content)
