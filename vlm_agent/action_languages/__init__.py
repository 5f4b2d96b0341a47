"""Action languages: how an action is written for a model, and read back. One codec a file."""

from typing import Protocol

from vlm_agent.episodes import Action, Step


class ActionLanguage(Protocol):
    """`parse(render(a))` is `a` up to the language's stated resolution; `parse` never raises.

    `step` gives the screen to languages that name elements; others ignore it.
    """

    def render(self, action: Action, step: Step | None = None) -> str: ...

    def parse(self, text: str, step: Step | None = None) -> Action | None: ...
