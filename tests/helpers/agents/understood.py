"""Screens that are read without models: a reader that knows their parts."""

from dataclasses import dataclass, field

import numpy as np

from vlm_agent.episodes import UiElement
from vlm_agent.screens.seen import Block, Part, Understood


def understood(*parts: Part | str, size: tuple[int, int] = (64, 32)) -> Understood:
    """Parts by their texts, or themselves, below each other, in one block."""
    height = 1 / max(len(parts), 1)
    made = tuple(
        Part(n, "button", (n * height, 0.0, height * 0.8, 1.0), part) if isinstance(part, str) else part
        for n, part in enumerate(parts)
    )
    blocks = (Block((0.0, 0.0, 1.0, 1.0), tuple(range(len(made)))),) if made else ()
    return Understood(size, (), (), made, blocks)


def as_parts(elements: tuple[UiElement, ...]) -> Understood:
    """What a phone reports, as if it had been read: texts, and icons by the end of their type."""
    return understood(
        *(
            Part(n, "text" if one.type == "TEXT" else "button", one.box, one.text or one.type.removeprefix("ICON_"))
            for n, one in enumerate(elements)
        )
    )


@dataclass
class KnownScreens:
    """A reader in place of `ScreenReader`. `screens`: by the value of the first pixel; `default`: of all others."""

    default: Understood = understood()  # noqa: RUF009 (frozen)
    screens: dict[int, Understood] = field(default_factory=dict)

    def read(self, pixels: np.ndarray) -> Understood:
        return self.screens.get(int(pixels[0, 0, 0]), self.default)
