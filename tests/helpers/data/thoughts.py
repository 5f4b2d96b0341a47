"""Episodes with the four texts of CoAT; each text names its part and step."""

from dataclasses import replace

from vlm_agent.episodes import Episode
from vlm_agent.recipe.data import CoatRecipe

ALL = CoatRecipe(screen=True, result=True, think=True, action=True, think_weight=0.5)

ROWS = {
    1: (),
    2: ("screen",),
    3: ("result",),
    4: ("screen", "result"),
    5: ("think",),
    6: ("action",),
    7: ("think", "action"),
    8: ("screen", "think", "action"),
    9: ("result", "think", "action"),
    10: ("screen", "result", "think", "action"),
}
"""The parts of each row of table 5 of Android in the Zoo. The marks of rows 2, 4 to 6 and 8 are inferred."""


def row(number: int) -> dict:
    """`data.coat` of a row of table 5."""
    return dict.fromkeys(ROWS[number], True)


def with_texts(episode: Episode) -> Episode:
    steps = [
        replace(
            step,
            notes={
                "screen": f"screen-{n}",
                "think": f"think-{n} {'a' * n}",
                "action": f"action-{n}",
                "result": f"result-{n}",
            },
        )
        for n, step in enumerate(episode.steps)
    ]
    return replace(episode, steps=tuple(steps))
