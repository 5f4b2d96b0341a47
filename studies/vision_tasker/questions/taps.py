"""Kinds of errors before any planning (VisionTasker, table 2): what a view makes of the expert's tap."""

from studies.vision_tasker.questions.truth import Truth
from studies.vision_tasker.questions.views import Thing, View, has, meanings_of, plain

VERDICTS = ("named", "ambiguous", "misread", "missed")


def verdict(truth: Truth, view: View) -> str:
    """`missed`: no thing of the view, touched at its centre, does what the expert's tap does. `misread`: one does, and
    none of those has the right name. `ambiguous`: a thing elsewhere has the same name. `named`: none of these."""
    hits = [thing for thing in view.things if truth.key_at(thing.centre_yx) == truth.key]
    if not hits:
        return "missed"
    right = [thing for thing in hits if has_name(truth, thing)]
    if not right:
        return "misread"
    others = {plain(thing.label) for thing in view.things if truth.key_at(thing.centre_yx) != truth.key}
    return "ambiguous" if all(plain(thing.label) in others for thing in right) else "named"


def has_name(truth: Truth, thing: Thing) -> bool:
    if truth.wanted_texts:
        return any(has(thing.label, text) for text in truth.wanted_texts)
    return thing.label == truth.wanted_icon or _meaning(thing.label) in meanings_of(truth.wanted_icon)


def _meaning(label: str) -> str:
    return label.removeprefix("ICON_").lower()
