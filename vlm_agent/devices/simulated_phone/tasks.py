"""Tasks: goals from templates, assigned to splits so that no two splits share an instance."""

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.simulated_phone.expert import Expert, GoalScript
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.episodes import Step

T = TypeVar("T")

SALT = "14432"
"""Salt of the hash that assigns instances to splits, chosen so that every template has instances in every split.
Changing it, or the slots of a template, changes the data sets."""

SPLITS = ("train", "validation", "test")


@dataclass
class Slots:
    """The choices that fill a template. The template's name and these choices identify the goal's instance."""

    rng: random.Random
    chosen: list[str] = field(default_factory=list)

    def pick(self, options: Iterable[T]) -> T:
        """One of `options`; it becomes part of the instance."""
        value = self.rng.choice(list(options))
        self.chosen.append(str(value))
        return value

    def hide(self, options: Iterable[T]) -> T:
        """One of `options` that the goal's words do not contain. It is not part of the instance; otherwise the same
        words could be a goal of several splits."""
        return self.rng.choice(list(options))

    def pair(self, options: Iterable[T]) -> tuple[T, T]:
        """Two different ones of `options`, in random order; both become part of the instance."""
        first, second = self.rng.sample(list(options), 2)
        self.chosen += [str(first), str(second)]
        return first, second


@dataclass(frozen=True)
class Goal:
    """A filled template: its wordings, the set-up of the phone, the expert's script and the success criterion."""

    phrasings: tuple[str, ...]
    start: Callable[[SimulatedPhone, random.Random], None]
    script: GoalScript
    reached: Callable[[SimulatedPhone], bool]


@dataclass(frozen=True)
class Template:
    subset: str
    name: str
    weight: float
    memory: bool
    make: Callable[[Slots], Goal]


TEMPLATES: list[Template] = []


def template(subset: str, weight: float = 1.0, memory: bool = False) -> Callable:
    """Register a function from slots to a goal as a template of a subset. Templates are drawn in proportion to
    `weight`."""

    def register(make: Callable[[Slots], Goal]) -> Callable[[Slots], Goal]:
        TEMPLATES.append(Template(subset, make.__name__, weight, memory, make))
        return make

    return register


@dataclass(frozen=True)
class Task:
    """A goal on a phone. `memory`: some correct action depends on more than the goal and the current screen.

    `instance`: the template and its slots, which the splits do not share. `seed` determines the set-up and the wording.
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
        """Bring the phone to the start of the task."""
        self._goal.start(phone, random.Random(f"start {self.seed}"))
        phone.changed()

    def reached(self, phone: SimulatedPhone) -> bool:
        """Whether the phone is in the state that the goal asks for."""
        return self._goal.reached(phone)

    def solve(self, phone: SimulatedPhone, pixels: bool = True) -> tuple[Step, ...]:
        """The expert's steps after `set_up`, the last one complete or impossible."""
        return Expert(phone, random.Random(f"finger {self.seed}"), pixels).follow(self._goal.script)


def split_of(instance: str) -> str:
    """The split of an instance by its hash: 80 % train, 10 % validation, 10 % test."""
    number = int.from_bytes(hashlib.sha256(f"{SALT} {instance}".encode()).digest()[:8], "big") % 10
    return {8: "validation", 9: "test"}.get(number, "train")


def sample_task(subset: str, split: str, seed: int) -> Task:
    """The task of a subset and split that `seed` determines. Raises DeviceError for an unknown subset or split."""
    templates = [item for item in TEMPLATES if item.subset == subset]
    if not templates or split not in SPLITS:
        raise DeviceError(f"unknown subset {subset!r} or split {split!r}")
    rng = random.Random(f"{subset} {split} {seed}")
    chosen = rng.choices(templates, [item.weight for item in templates])[0]
    goal, instance = _instance_in(chosen, split, rng)
    text = rng.choice(goal.phrasings)
    return Task(subset, split, seed, text, instance, chosen.name, chosen.memory, goal)


def _instance_in(chosen: Template, split: str, rng: random.Random) -> tuple[Goal, str]:
    for _ in range(2000):
        slots = Slots(rng)
        goal = chosen.make(slots)
        instance = "|".join((f"{chosen.subset}/{chosen.name}", *slots.chosen))
        if split_of(instance) == split:
            return goal, instance
    raise RuntimeError(f"no instance of the template {chosen.name} is in {split}; add slots to it or change SALT")
