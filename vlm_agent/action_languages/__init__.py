"""Action languages: how an action is written for a model, and read back. One codec a file."""

from typing import Protocol

from vlm_agent.episodes import Action, Step


class ActionLanguage(Protocol):
    """`parse(render(a))` is `a` up to the language's stated resolution; `parse` never raises.

    `ending(text)` are words that make an action of `text`, "" where it is one and None where no words do: what keeps
    decoding to the language, and brings it to an end. `instructions` tell the language to a model that never saw it.
    `step` gives the screen to languages that name elements, `sought` what a swipe is to bring to those that say it;
    others ignore them.
    """

    sought: bool
    """Whether its swipes may say what they are to bring."""

    def render(self, action: Action, step: Step | None = None, sought: str | None = None) -> str: ...

    def parse(self, text: str, step: Step | None = None) -> Action | None: ...

    def ending(self, text: str) -> str | None: ...

    @property
    def instructions(self) -> str: ...
