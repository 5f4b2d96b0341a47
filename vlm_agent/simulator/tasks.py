"""Tasks: goals from templates, assigned to splits so that no two splits share an instance."""

import difflib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.task_sets import SPLITS, split_of
from vlm_agent.episodes import Step
from vlm_agent.simulator.expert import Expert, GoalScript, LostError
from vlm_agent.simulator.phone import SimulatedPhone

T = TypeVar("T")


@dataclass
class Slots:
    """Fills the slots of a template at random. The template's name and `values` identify the goal's instance."""

    rng: random.Random
    values: list[str] = field(default_factory=list)

    def pick(self, options: Iterable[T]) -> T:
        """A random one of `options`; it becomes part of the instance."""
        value = self.rng.choice(list(options))
        self.values.append(str(value))
        return value

    def hide(self, options: Iterable[T]) -> T:
        """A random one of `options` that the goal's words do not mention.

        It is not part of the instance; otherwise goals of several splits could have the same words.
        """
        return self.rng.choice(list(options))

    def pair(self, options: Iterable[T]) -> tuple[T, T]:
        """Two different `options` in random order; both become part of the instance."""
        first, second = self.rng.sample(list(options), 2)
        self.values += [str(first), str(second)]
        return first, second


@dataclass(frozen=True)
class Goal:
    """An instance of a template: its phrasings, the set-up of the phone, the expert's script and the success
    criterion."""

    phrasings: tuple[str, ...]
    start: Callable[[SimulatedPhone, random.Random], None]
    script: GoalScript
    reached: Callable[[SimulatedPhone], bool]


@dataclass(frozen=True)
class Template:
    """A function `make` from slots to a goal, and how `sample_task` uses it; see `template`."""

    subset: str
    name: str
    weight: float
    memory: bool
    make: Callable[[Slots], Goal]


TEMPLATES: list[Template] = []


def template(subset: str, weight: float = 1.0, memory: bool = False) -> Callable:
    """Registers a function from slots to a goal as a template of a subset.

    Templates are sampled in proportion to `weight`. `memory`: see `Task`.
    """

    def register(make: Callable[[Slots], Goal]) -> Callable[[Slots], Goal]:
        TEMPLATES.append(Template(subset, make.__name__, weight, memory, make))
        return make

    return register


@dataclass(frozen=True)
class Task:
    """A goal on a phone. `memory`: some correct action depends on more than the goal and the current screen.

    `instance`: the template's name and slots; each instance belongs to one split. `seed` determines the set-up and the
    phrasing.
    """

    subset: str
    split: str
    seed: int
    goal: str
    instance: str
    template: str
    memory: bool
    _goal: Goal

    def set_up(self, phone: SimulatedPhone) -> None:
        """Brings a new phone into the start state of the task."""
        self._goal.start(phone, random.Random(f"start {self.seed}"))
        phone.changed()

    def reached(self, phone: SimulatedPhone) -> bool:
        """Whether the phone's state satisfies the goal."""
        return self._goal.reached(phone)

    def solve(self, phone: SimulatedPhone, pixels: bool = True, thoughts: bool = False) -> tuple[Step, ...]:
        """The expert's steps after `set_up`; the last action is `complete` or `impossible`. `pixels`: whether the steps
        have screenshots. `thoughts`: whether they have notes. Raises DeviceError where the screen is too small."""
        expert = Expert(phone, random.Random(f"finger {self.seed}"), pixels, thoughts, self.goal)
        try:
            return expert.follow(self._goal.script)
        except LostError as error:
            height, width = phone.size
            why = f"on a screen of {height}x{width} pixels the expert does not reach {self.goal!r}"
            raise DeviceError(f"{why} ({error}); choose a larger size") from error


def check_templates(names: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The names. Raises DeviceError that names the `key` of the settings for a name that no template has."""
    known = [template.name for template in TEMPLATES]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
            raise DeviceError(f"{key}: {name!r} is unknown; did you mean {near}?")
    return names


def sample_task(subset: str, split: str, seed: int) -> Task:
    """The task with this seed in a subset and split. Raises DeviceError for an unknown subset or split."""
    templates = [item for item in TEMPLATES if item.subset == subset]
    if not templates:
        raise DeviceError(
            f"unknown subset {subset!r}; choose from {', '.join(sorted({one.subset for one in TEMPLATES}))}"
        )
    if split not in SPLITS:
        raise DeviceError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
    rng = random.Random(f"{subset} {split} {seed}")
    choice = rng.choices(templates, [item.weight for item in templates])[0]
    goal, instance = _sample_instance(choice, split, rng)
    text = rng.choice(goal.phrasings)
    return Task(subset, split, seed, text, instance, choice.name, choice.memory, goal)


def _sample_instance(choice: Template, split: str, rng: random.Random) -> tuple[Goal, str]:
    """A goal of the template whose instance is in `split`, by rejection sampling, and this instance."""
    for _ in range(2000):
        slots = Slots(rng)
        goal = choice.make(slots)
        instance = "|".join((f"{choice.subset}/{choice.name}", *slots.values))
        if split_of(instance) == split:
            return goal, instance
    raise RuntimeError(f"no instance of the template {choice.name} is in {split}; add slots to it or change SALT")
