"""Languages of released agents: stored answers and the actions that they mean, and actions and their texts.

Files are JSON lines, plain or gzip. A row with `check: exact` has the action that its text means on its screen; one
with `check: free` may mean anything, but reading it must not raise. A row with `read_as` has the text of an action.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.language import SWIPES, ActionLanguage
from vlm_agent.episodes import Action, ActionKind, Screen

KINDS = {kind.short_name: kind for kind in ActionKind}
CLOSE = 0.00051


def rows_of(path: str | Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def language_of(row: dict[str, Any]) -> ActionLanguage:
    """The row's language, with the limits of its picture."""
    limits = {"factor": "multiple", "min_pixels": "min_pixels", "max_pixels": "max_pixels"}
    settings = {ours: row["screen"][theirs] for theirs, ours in limits.items() if theirs in row["screen"]}
    return language_settings({"name": row["language"], **settings}).build()


def screen_of(row: dict[str, Any]) -> Screen:
    return Screen(None, size=(row["screen"]["height"], row["screen"]["width"]))


def action_of(content: dict[str, Any]) -> Action:
    kind = content["kind"]
    if kind == "tap":
        return Action.tap(*content["point"])
    if kind == "swipe":
        touch, lift = SWIPES[content["finger"]]
        return Action.swipe(tuple(content.get("touch", touch)), tuple(content.get("lift", lift)))
    if kind == "long_press":
        return Action.long_press(*content["point"])
    return Action(KINDS[kind], text=content.get("text", ""))


def _unit(row: dict[str, Any]) -> float:
    """Half a unit of the language's grid, or the rounding of the file."""
    shorter = min(row["screen"]["resized_width"], row["screen"]["resized_height"])
    return max(CLOSE, 0.5 / shorter if "factor" in row["screen"] else 0)


def _near(point: Sequence[float], expected: Sequence[float], within: float) -> bool:
    return all(abs(one - other) <= within for one, other in zip(point, expected, strict=True))


def is_same(decoded: Action | None, content: dict[str, Any], within: float) -> bool:
    kind = content["kind"]
    if kind == "none" or decoded is None:
        return kind == "none" and decoded is None
    if decoded.name != kind or decoded.text != content.get("text", ""):
        return False
    if kind == "swipe":
        ends = [("touch", decoded.touch_yx), ("lift", decoded.lift_yx)]
        both = "touch" not in content or all(_near(end, content[name], within) for name, end in ends)
        return both and decoded.direction == content["finger"]
    return "point" not in content or _near(decoded.touch_yx, content["point"], within)


def difference(row: dict[str, Any]) -> str | None:
    """What is wrong with one row; None if nothing is."""
    language, screen = language_of(row), screen_of(row)
    if "read_as" in row:
        text = language.encode(action_of(row["action"]), screen)
        return None if text == row["text"] else f"{row['action']} is written {text!r}, not {row['text']!r}"
    decoded = language.decode(row["text"], screen)
    if row["check"] == "free" or is_same(decoded, row["action"], _unit(row)):
        return None
    return f"{row['id']}: {row['text']!r} is read as {decoded}, not {row['action']}"


def languages(files: Sequence[str]) -> int:
    """Prints rows compared and different, and each difference; 1 if any row differs."""
    compared, found = 0, []
    for file in files:
        for row in rows_of(file):
            compared += 1
            if (wrong := difference(row)) is not None:
                found.append(f"{row['language']} {wrong}")
    print(f"{compared} compared, {len(found)} different", *found, sep="\n")
    return int(bool(found))
