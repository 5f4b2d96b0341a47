"""Episodes with notes; each text names its note and step, and a plan holds no line of a later one."""

from dataclasses import replace

from vlm_agent.episodes import Episode
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.notes import PRESETS, NoteUse
from vlm_agent.sentences.notes import HeadedNotes, NoteLines

ROWS = range(1, 11)
"""The rows of table 5 of Android in the Zoo."""

FORMS = {
    "given step": PRESETS["d_pot_teacher"],
    "given": PRESETS["d_pot_read"],
    "learned step": {"step": "learned"},
    "dynamic": PRESETS["d_pot_dynamic"],
    "d_pot": PRESETS["d_pot"],
    "static": PRESETS["d_pot_static"],
    "static, step": {"plan": "first", "step": "learned"},
    "mixed": {"plan": "read", "step": "learned"},
}
"""Name → `data.notes` with a plan or its step."""


def row(number: int) -> dict[str, str]:
    """`data.notes` of a row of table 5."""
    return PRESETS[f"coat_{number}"]


def weighted(notes: dict[str, str], weight: float) -> dict[str, str | dict]:
    """`data.notes` whose learned notes have a loss weight."""
    return {name: use if use == "read" else {"use": use, "weight": weight} for name, use in notes.items()}


ALL = weighted(row(10), 0.5)


def uses(notes: dict | str) -> dict[str, NoteUse]:
    """`data.notes` as it is validated."""
    return DataRecipe(notes=notes, past_screens=0).notes


def with_texts(episode: Episode) -> Episode:
    """The four texts of Android in the Zoo."""
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


def with_plans(episode: Episode) -> Episode:
    """A plan and its immediate step, too."""
    steps = [
        replace(step, notes={**step.notes, "plan": f"plan-{n} {'b' * n}\nrest-{n}", "step": f"step-{n}"})
        for n, step in enumerate(episode.steps)
    ]
    return replace(episode, steps=tuple(steps))


def lines(notes: dict | str, max_tokens: int = 256, may_miss: bool = False) -> NoteLines:
    return NoteLines(uses(notes), may_miss, max_tokens)


def headed(notes: dict | str) -> HeadedNotes:
    return HeadedNotes(uses(notes))
