"""Action descriptions that contradict their action, or name nothing on the screen.

The check reads the words of a description; it does not see pixels. It lists steps for a person to look at: an element
that is named by other words than the screen's own annotation is listed although it may be right.

| problem            | the description                                                                            |
|--------------------|--------------------------------------------------------------------------------------------|
| missing            | is empty, although the step has other texts                                                |
| other action       | begins with the verb of another action, or with none that is known                         |
| other direction    | of a swipe has another direction than the finger, or none                                  |
| other text         | does not contain the text that is typed                                                    |
| other button       | names another button than the one pressed, or none                                         |
| other status       | says impossible where the task is complete, or the other way round                         |
| names nothing      | of a tap has no word for what is touched                                                   |
| not on the screen  | of a tap shares no word with any element of the screen                                     |
| other element      | of a tap names elements of the screen, but not the one under the finger                    |

The same for the immediate step of a plan (the note `step`), as "plan: …". A step may begin with any verb, so only a
known one can be that of another action; a step that names no element of the screen is listed unless the touched element
has no text. A step that closes something needs no name.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.statistics.leakage import normalise
from vlm_agent.drawing.actions import describe
from vlm_agent.episodes import Action, ActionKind, Episode, Step, UiElement, element_at
from vlm_agent.files.console import only_printable
from vlm_agent.geometry import DIRECTIONS, OPPOSITE, distance
from vlm_agent.texts.actions import aitz_direction

_OF_PLAN = "plan: "

_SIMILAR = 0.75
"""Words with at least this ratio (`difflib`) count as the same: annotated texts are read from pixels, with errors."""

_SHORTEST = 3
"""Shorter words count as the same only if they are equal."""

_NEAR = 0.12
"""A label belongs to an icon if it is at most this far from the finger, in screen fractions."""

_TOUCHING = frozenset({"tap", "long_press"})
_ENDING = frozenset(kind.short_name for kind in ActionKind if kind.facts.ends_episode)
_PRESSING = frozenset(kind.short_name for kind in ActionKind if kind.facts.key is not None)
_VERBS = {
    **dict.fromkeys(("click", "tap", "touch", "select", "choose", "close", "check", "toggle"), _TOUCHING),
    **dict.fromkeys(("long", "hold"), frozenset({"long_press"})),
    **dict.fromkeys(("scroll", "swipe", "drag", "slide", "fling", "look"), frozenset({"swipe"})),
    **dict.fromkeys(("type", "input", "write"), frozenset({"type"})),
    **dict.fromkeys(("go", "return", "navigate"), _PRESSING),
    **dict.fromkeys(("stop", "finish", "end", "complete", "declare", "all"), _ENDING),
    "open": frozenset({"tap", "open_app"}),
    "enter": frozenset({"type", "enter"}),
    "wait": frozenset({"wait"}),
    "answer": frozenset({"answer"}),
}
_BUTTON_WORDS = {
    "back": ("back",),
    "home": ("home",),
    "enter": ("enter",),
    "recents": ("recents", "recent", "overview"),
}
_IMPOSSIBLE = ("impossible", "infeasible", "cannot", "failed", "failure", "unable")
_COMPLETE = ("complete", "completed", "done", "success", "successful", "reached", "finished")

_NOT_NAMES = frozenset(
    (
        *("a", "an", "and", "at", "the", "this", "that", "of", "on", "in", "to", "for", "from", "with", "by", "its"),
        *("it", "is", "are", "which", "near", "next", "above", "below", "under", "over", "into", "located", "labelled"),
        *("labeled", "named", "called", "visible", "first", "second", "third", "fourth", "fifth", "last", "upper"),
        *("lower", "middle", "top", "bottom", "center", "centre", "central", "corner", "side", "part", "area", "row"),
        *("column", "screen", "page", "app", "application", "icon", "button", "option", "item", "link", "tab", "field"),
        *("bar", "box", "text", "image", "picture", "list", "result", "entry", "element", *DIRECTIONS),
    )
)
"""Words that place or classify an element without naming it."""

_ICONS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("icon_words.yaml").read_text(encoding="utf-8"))
"""Other words for AITW's types of icons, which are drawn without text."""


@dataclass(frozen=True)
class Finding:
    """A step whose action description needs a look. `step` counts from 0, `problem` is in the module's table."""

    episode_id: str
    step: int
    problem: str
    description: str
    action: str

    @property
    def is_of_plan(self) -> bool:
        return self.problem.startswith(_OF_PLAN)

    def __str__(self) -> str:
        line = f"episode {self.episode_id}, step {self.step}: {self.problem}: {self.description!r} for {self.action}"
        return only_printable(line)


def check_dataset(dataset: ShardDataset) -> Iterator[Finding]:
    """The findings in all episodes, in their order. Pixels are not read."""
    for index in range(len(dataset)):
        yield from check_episode(dataset.without_pixels(index))


def check_episode(episode: Episode) -> Iterator[Finding]:
    for number, step in enumerate(episode.steps):
        if (problem := check_step(step)) is not None:
            yield Finding(episode.id, number, problem, step.notes["action"], describe(step.action))
        planned = step.notes.get("step")
        if planned is not None and (problem := check_planned_step(planned, step)) is not None:
            yield Finding(episode.id, number, f"{_OF_PLAN}{problem}", planned, describe(step.action))


def check_step(step: Step) -> str | None:
    """The first problem of a step's action description; None if it has none, or if the step has no description."""
    if "action" not in step.notes:
        return None
    text, action = " ".join(step.notes["action"].split()), step.action
    words = _words(text)
    if not words:
        return "missing"
    if action.name not in _actions_named(words):
        return "other action"
    if action.is_touch:
        return _element_problem(words, step)
    return _problem_without_element(text, action)


def check_planned_step(text: str, step: Step) -> str | None:
    """The first problem of the immediate step of a plan; None if it has none."""
    words, action = _words(text), step.action
    if not words:
        return "missing"
    if words[0] in _CLOSING and action.name in ("tap", "swipe"):
        return None
    named = _actions_named(words)
    if named and action.name not in named:
        return "other action"
    if not action.is_touch:
        return _problem_without_element(text, action)
    touched = element_at(step.elements, action.touch_yx)
    if touched is not None and _mentions(words, touched):
        return None
    problem = _element_problem(words, step)
    return None if problem == "not on the screen" and touched is not None and not touched.text else problem


_CLOSING = frozenset({"close", "dismiss", "cancel"})


def _problem_without_element(text: str, action: Action) -> str | None:
    """The problem of a description of an action that touches no element, apart from its first word."""
    words = _words(text)
    if action.is_swipe:
        return _direction_problem(words, action)
    if action.kind is ActionKind.TYPE:
        return None if normalise(action.text) in normalise(text) else "other text"
    if action.name in _PRESSING:
        return None if _buttons(words) == {action.name} else "other button"
    return _status_problem(words, action) if action.is_status else None


def _actions_named(words: Sequence[str]) -> frozenset[str]:
    """The names of the actions that a description may be of, by its first word."""
    if words[0] != "press":
        return _VERBS.get(words[0], frozenset())
    if words[1:3] == ["and", "hold"]:
        return frozenset({"long_press"})
    # "press the back button" is no tap, even if the screen has such a button: the language has a word for it.
    return frozenset(_buttons(words)) or _TOUCHING


def _direction_problem(words: Sequence[str], action: Action) -> str | None:
    """Both rules for diagonal swipes are accepted: AitZ's and AITW's. `look down` names what comes into view."""
    found = [word for word in words if word in DIRECTIONS]
    if words[0] == "look":
        found = [OPPOSITE[word] for word in found]
    return None if found and found[0] in (aitz_direction(action), action.direction) else "other direction"


def _buttons(words: Sequence[str]) -> set[str]:
    return {name for name, forms in _BUTTON_WORDS.items() if any(form in words for form in forms)}


def _status_problem(words: Sequence[str], action: Action) -> str | None:
    says_impossible = any(word in _IMPOSSIBLE for word in words) or ("not" in words and "possible" in words)
    says_complete = not says_impossible and any(word in _COMPLETE for word in words)
    is_right = says_impossible if action == Action.impossible() else says_complete
    return None if is_right else "other status"


def _element_problem(words: Sequence[str], step: Step) -> str | None:
    names = [word for word in words[1:] if word not in _NOT_NAMES]
    touched = element_at(step.elements, step.action.touch_yx)
    # All words: an icon such as "list" may be named by a word that otherwise only classifies.
    if touched is not None and _mentions(words[1:], touched):
        return None
    if not names:
        return "names nothing"
    named = [element for element in step.elements if _mentions(names, element)]
    if not named:
        return "not on the screen"
    if touched is not None and len(touched.text) >= _SHORTEST:
        return "other element"
    # An icon has no text of its own, and a logo only a letter: the label beside it is another element.
    is_near = any(distance(element.box, step.action.touch_yx) <= _NEAR for element in named)
    return None if is_near else "other element"


def _mentions(words: Sequence[str], element: UiElement) -> bool:
    """Whether one of the words is, up to errors of reading, a word of the element's text or type."""
    icon = "" if element.type == "TEXT" else element.type.removeprefix("ICON_").lower()
    own = _words(f"{element.text} {icon.replace('_', ' ')} {_ICONS.get(icon, '')}")
    return any(_is_same(word, other) for other in own for word in words)


def _is_same(first: str, second: str) -> bool:
    if first == second:
        return True
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) < _SHORTEST or len(longer) > 2 * len(shorter):
        return False
    return shorter in longer or difflib.SequenceMatcher(None, first, second).ratio() >= _SIMILAR


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
