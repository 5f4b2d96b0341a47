"""`data.notes` of a recipe: which notes of a step (`episodes.Notes`) a sentence has, and how it uses each.

    notes: { result: read, think: learned, action: { use: learned, weight: 0.5 } }
    notes: coat_9

`read`: before the screen. `learned`: the model writes it before the action. `first`: learned at the first step of an
episode, and read at later ones.

`html` is the screen in D-PoT's form (`sentences/html.py`) beside its pixels; text models have it in place of pixels. It
stays under the control `grey_screens`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from vlm_agent.settings import Section


class NoteRules(NamedTuple):
    """`uses`: what a recipe may do with a note. `fades`: a later step does not have it. `on_phone`: any phone gives it
    (`texts/phone.py`). `of_elements`: it is never recorded, and computed from the elements of the screen."""

    uses: tuple[str, ...]
    fades: bool = False
    on_phone: bool = False
    of_elements: bool = False


NOTES = {
    "result": NoteRules(("read",), on_phone=True),
    "screen": NoteRules(("read",), on_phone=True),
    "plan": NoteRules(("read", "learned", "first"), fades=True),
    "step": NoteRules(("read", "learned")),
    "html": NoteRules(("read",), of_elements=True),
    "think": NoteRules(("learned",)),
    "action": NoteRules(("learned",)),
}
"""The notes, in the order in which they are read, and written."""

_ROWS = {
    1: (),
    2: ("screen",),
    3: ("result",),
    4: ("result", "screen"),
    5: ("think",),
    6: ("action",),
    7: ("think", "action"),
    8: ("screen", "think", "action"),
    9: ("result", "think", "action"),
    10: ("result", "screen", "think", "action"),
}
"""The rows of table 5 of Android in the Zoo (CoAT). The marks of rows 2, 4 to 6 and 8 are inferred."""

PRESETS: dict[str, dict[str, str]] = {
    **{f"coat_{row}": {name: NOTES[name].uses[0] for name in names} for row, names in _ROWS.items()},
    "d_pot": {"plan": "learned", "step": "learned"},
    "d_pot_dynamic": {"plan": "learned"},
    "d_pot_static": {"plan": "first"},
    "d_pot_read": {"plan": "read", "step": "read"},
    "d_pot_teacher": {"step": "read"},
}
"""Names that `data.notes` may have in place of notes: rows of CoAT's table 5, and the modes of D-PoT with a plan."""


class NoteUse(Section):
    """`weight`: the loss weight of a note that is learned; the action's is 1."""

    use: str
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


def _spelled_out(value: Any) -> Any:
    """A preset, and uses without a weight, as `NoteUse`s."""
    if isinstance(value, str):
        if value not in PRESETS:
            raise ValueError(f"{value!r} is unknown; give notes, or choose one of {', '.join(PRESETS)}")
        value = PRESETS[value]
    if not isinstance(value, Mapping):
        return value
    return {name: {"use": use} if isinstance(use, str) else use for name, use in value.items()}


def _allowed(uses: dict[str, NoteUse]) -> dict[str, NoteUse]:
    """The notes in their order. Raises ValueError for a note or a use that is unknown."""
    for name, note in uses.items():
        if name not in NOTES:
            raise ValueError(f"{name} is unknown; choose from {', '.join(NOTES)}")
        if note.use not in NOTES[name].uses:
            raise ValueError(f"{name} cannot be {note.use}; it is {' or '.join(NOTES[name].uses)}")
        if note.use == "read" and note.weight != 1:
            raise ValueError(f"{name} is read and has no loss; remove its weight")
    return {name: uses[name] for name in NOTES if name in uses}


NoteUses = Annotated[dict[str, NoteUse], BeforeValidator(_spelled_out), AfterValidator(_allowed)]
