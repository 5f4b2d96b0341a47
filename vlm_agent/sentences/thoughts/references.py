"""Demonstrations with similar goals in a trajectory (`data.references`), after the goal:

    Goal: …
    Similar: the nearest goal: first action; second action
    Similar: the second nearest goal: …

The actions are words of earlier steps (`TrajectorySentences.in_words`). The lines are read and not learned.
"""

from collections.abc import Sequence
from pathlib import Path

from vlm_agent.texts.lines import one_line

_HEADING = "Similar: "
_LINK = "; "


class ReferenceLines:
    """What a sentence reads of other episodes. This one has none; subclasses find them."""

    def lines(self, goal: str, without: str) -> list[str]:
        """A line for each reference of `goal`, with its line feed. `without`: the id of the episode of the sentence,
        which is no reference; empty on a phone."""
        return []

    def has_goal(self, goal: str, without: str) -> bool | None:
        """Whether a reference has the same goal; None without references."""
        return None

    @property
    def digest(self) -> bytes:
        """The digest of what decides the lines beside the training episodes; empty without references."""
        return b""

    def write(self, run: Path) -> None:
        """Writes into the run folder what an agent of the run needs of them."""
        return


NO_REFERENCES = ReferenceLines()


def reference_line(goal: str, actions: Sequence[str]) -> str:
    """`actions`: in words, each on one line."""
    return f"{_HEADING}{one_line(goal)}: {_LINK.join(actions)}\n"
