"""Tasks in the settings of the browser phone, in English and translated into German, with an expert for both.

The phone's own row "Language" translates nothing, so the translation is one of the pages' contents. The bar's title
"Settings", the buttons of the field for a name, and the goals stay English.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from studies.vision_tasker.demonstrations.phones import Start
from vlm_agent.agents import Agent, Answer, Turn
from vlm_agent.devices.browser.phone import BrowserPhone
from vlm_agent.devices.browser.tasks import BrowserTask, browser_task, make_world
from vlm_agent.episodes import Action, Screen

GERMAN = Path(__file__).with_name("settings_german.json")
SEEDS = 1000
"""Seeds whose tasks are looked through. There are some 60 different goals."""

TESTED = 4
"""One goal of so many is for tests, by its checksum; training has the others."""

Plan = Sequence[tuple[str, str]]
"""(`tap`, text of an element) or (`type`, text) in order."""


def seeds_of(count: int, tested: bool) -> tuple[int, ...]:
    """Seeds of `count` tasks. No goal is both tested and trained on; a tested goal occurs once."""
    found: dict[str, int] = {}
    for seed in range(SEEDS):
        goal = browser_task("settings", seed).goal
        if (zlib.crc32(goal.encode()) % TESTED == 0) == tested:
            found.setdefault(goal if tested else f"{goal} {seed}", seed)
    return tuple(found.values())[:count]


@dataclass(frozen=True)
class SettingsPhones:
    """The tasks with these seeds, in the settings in English or translated."""

    name: str
    seeds: tuple[int, ...]
    is_translated: bool = False

    @property
    def tasks(self) -> int:
        return len(self.seeds)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Start]]:
        words = german() if self.is_translated else {}
        with TranslatedPhone(words) as phone:

            def start(number: int) -> Start:
                seed = self.seeds[number]
                task = translated_task(browser_task("settings", seed), words)
                task.set_up(phone)
                expert = SettingsExpert(plan_of(task, phone.world(seed)))
                name = f"browser:settings/{seed}"
                return Start(phone, name, task.goal, task.subset, lambda: task.reached(phone), lambda: expert)

            yield start


class TranslatedPhone(BrowserPhone):
    """`words`: English text → text on the pages of the settings; others stay."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words
        super().__init__()

    def world(self, seed: int) -> dict:
        world = make_world(seed)
        return world | {name: translated(world[name], self.words) for name in ("pages", "settings")}


def german() -> dict[str, str]:
    return json.loads(GERMAN.read_text(encoding="utf-8"))


def translated(content: object, words: dict[str, str]) -> object:
    """JSON with the texts in `words` translated; keys of objects stay."""
    if isinstance(content, dict):
        return {key: translated(value, words) if key not in ("id", "key") else value for key, value in content.items()}
    if isinstance(content, list):
        return [translated(value, words) for value in content]
    return words.get(content, content) if isinstance(content, str) else content


def translated_task(task: BrowserTask, words: dict[str, str]) -> BrowserTask:
    """With the values of the translated settings, and the goal as it is."""
    settings = translated(task.expected["settings"], words)
    return replace(task, expected=task.expected | {"settings": settings})


def plan_of(task: BrowserTask, world: dict) -> Plan:
    """What to tap and type, in the words of `world`."""
    expected, before = task.expected["settings"], world["settings"]
    key = next(key for key, value in expected.items() if value != before[key])
    page, row = next((page, row) for page in world["pages"] for row in page["rows"] if row["key"] == key)
    opened = ("tap", page["title"])
    if row["kind"] == "toggle":
        return (opened, ("tap", row["label"]))
    if row["kind"] == "choice":
        return (opened, ("tap", expected[key]))
    return (opened, ("tap", "Clear"), ("type", expected[key]), ("tap", "Save"))


@dataclass(frozen=True)
class SettingsExpert(Agent):
    """Follows a plan, and swipes up where the next text is not on the screen."""

    plan: Plan

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        number = sum(turn.action is not None and not turn.action.is_swipe for turn in history)
        if number == len(self.plan):
            return Answer("done", Action.complete())
        verb, text = self.plan[number]
        if verb == "type":
            return Answer(f"type {text}", Action.type_text(text))
        for element in screen.elements or ():
            if element.text == text:
                return Answer(f"tap {text}", Action.tap(*element.centre_yx))
        return Answer("swipe up", Action.swipe((0.8, 0.5), (0.3, 0.5)))
