"""The core of every environment: choose a task, then play it on a simulated phone, one answer after the other."""

import difflib
import json
from collections.abc import Collection, Generator
from dataclasses import dataclass

from vlm_agent.action_languages import LANGUAGES, ActionLanguage, language_settings
from vlm_agent.agents import Answer, Asked
from vlm_agent.devices.acting.episode import Outcome, untraced_turns
from vlm_agent.episodes import Action, Screen
from vlm_agent.errors import UserError
from vlm_agent.simulator import SPLITS, TEMPLATES
from vlm_agent.simulator.demonstrations import phone_seed, subset_of
from vlm_agent.simulator.opening import SimulatedTask

LONGEST_TEXT = 4096
"""Characters of an answer; a longer text is not read, and not an action."""

_TEMPLATES = {template.name for template in TEMPLATES}
_DRAWS = 100_000


class PlayError(UserError):
    """A task or an answer that an environment refuses."""


@dataclass(frozen=True)
class Tasks:
    """The tasks of a split, or those of its `templates` alone. Raises PlayError for unknown names, and for split `test`
    without `allow_test`: test tasks are for evaluation."""

    split: str = "train"
    templates: Collection[str] | None = None
    allow_test: bool = False

    def __post_init__(self) -> None:
        _check_names("split", [self.split], SPLITS)
        self._check_split(self.split)
        if isinstance(self.templates, str):
            raise PlayError(f"templates is a list of names, such as [{self.templates[:80]!r}]")
        if self.templates is not None:
            _check_names("template", self.templates, _TEMPLATES)

    def drawn(self, number: int) -> SimulatedTask:
        """The task of a number, 0 or greater; without `templates`, that which `simulate` records for this number."""
        for attempt in range(_DRAWS):
            seed = phone_seed(number + (attempt << 64), self.split)
            task = SimulatedTask(subset_of(seed), self.split, seed)
            if self.templates is None or task.template in self.templates:
                return task
        raise PlayError(f"no task of the templates {', '.join(self.templates or ())}; name others")

    def named(self, address: str) -> SimulatedTask:
        """The task at SUBSET/SPLIT/SEED, such as general/train/7, of any template."""
        task = SimulatedTask.at(address) if isinstance(address, str) else None
        if task is None:
            raise PlayError(f"{str(address)[:80]!r} is not a task; write SUBSET/SPLIT/SEED, as in general/train/7")
        _check_names("subset", [task.subset], {template.subset for template in TEMPLATES})
        _check_names("split", [task.split], SPLITS)
        self._check_split(task.split)
        return task

    def _check_split(self, split: str) -> None:
        if split == "test" and not self.allow_test:
            raise PlayError("tasks of split test are for evaluation; use split train, or allow_test=True to evaluate")


def _check_names(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if not isinstance(name, str) or name not in known:
            nearest = difflib.get_close_matches(str(name)[:80], known, n=1, cutoff=0)
            raise PlayError(f"{str(name)[:80]!r} is not a {what}; did you mean {nearest[0]}?")
    if not names:
        raise PlayError(f"no {what} is named; name one, or leave the argument out")


def language_named(name: str) -> ActionLanguage:
    """The action language of `LANGUAGES` with this name, in its default settings. Raises PlayError for another name."""
    _check_names("language", [name], list(LANGUAGES))
    return language_settings({"name": name}).build()


class Play:
    """A task in progress: `screen` waits for an answer until `outcome` is known.

    The limits are those of `evaluate --online`: an answer that is not an action ends the play, because the screen stays
    as it is, and so do the third repetition of an action on a screen and twice the expert's steps plus four.
    """

    def __init__(self, task: SimulatedTask) -> None:
        self.task = task
        self.goal = task.goal
        self.outcome: Outcome | None = None
        self._turns = _turns(task)
        self.screen = next(self._turns).screen

    def answer(self, answer: Answer) -> None:
        """Performs the answer's action. Raises PlayError after the end."""
        if self.outcome is not None:
            raise PlayError(f"the play of {self.task.name} has ended by {self.outcome.ended}; reset the environment")
        try:
            self.screen = self._turns.send((answer, 0.0)).screen
        except StopIteration as end:
            self.outcome, self.screen = end.value

    def read(self, text: str, language: ActionLanguage) -> Action | None:
        """The action on this screen that `text` encodes, None if it encodes none."""
        return language.decode(text, self.screen) if len(text) <= LONGEST_TEXT else None

    def write(self, text: str, language: ActionLanguage) -> None:
        """`answer` by what `text` encodes."""
        self.answer(Answer(text[:LONGEST_TEXT], self.read(text, language)))

    @property
    def reward(self) -> float:
        """1 after a success, otherwise 0."""
        return float(self.outcome is not None and self.outcome.success is True)


def _turns(task: SimulatedTask) -> Generator[Asked, tuple[Answer, float], tuple[Outcome, Screen]]:
    """The questions of a task; the result is its outcome and the screen at the end."""
    with task.open() as opened:
        _, outcome = yield from untraced_turns(opened, task.name, task.solution())
        device = opened.device
        return outcome, Screen(device.screenshot(), device.elements(), device.activity)


def element_lines(screen: Screen) -> tuple[str, ...]:
    """The elements of a screen as JSON objects in ASCII: text, type, and the box (y, x, height, width) in screen
    fractions with three digits."""
    return tuple(
        json.dumps({"text": element.text, "type": element.type, "box": [round(value, 3) for value in element.box]})
        for element in screen.elements or ()
    )
