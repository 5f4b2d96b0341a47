"""Tasks: goals made from templates, divided between the splits so that no two splits share an instance."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from vlm_agent.devices.simulated_phone.expert import Expert, Plan
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.episodes import Step

SALT = "14432"
"""Decides the division of the instances. Chosen so that every template, however few its instances, has some of them in
every split; a change of it, or of a template's slots, changes the data sets."""

SPLITS = ("train", "validation", "test")


@dataclass
class Slots:
    """The choices that fill a template; they, with its name, are the goal's instance."""

    rng: random.Random
    chosen: list[str] = field(default_factory=list)

    def pick(self, options) -> str:
        """One of `options`, remembered as part of the instance."""
        value = self.rng.choice(list(options))
        self.chosen.append(str(value))
        return value

    def hide(self, options) -> str:
        """One of `options` that the goal does not tell, and so no part of the instance: the same words would otherwise
        be a goal of several splits."""
        return self.rng.choice(list(options))

    def pair(self, options) -> tuple[str, str]:
        """Two different ones."""
        first, second = self.rng.sample(list(options), 2)
        self.chosen += [str(first), str(second)]
        return first, second


@dataclass(frozen=True)
class Goal:
    """A filled template: how people say it, how the phone is set up, how it is done, how one sees that it is."""

    phrasings: tuple[str, ...]
    start: Callable[[SimulatedPhone, random.Random], None]
    plan: Plan
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
    """Register a function from slots to a goal as a template of a subset, drawn in proportion to `weight`."""

    def register(make: Callable[[Slots], Goal]) -> Callable[[Slots], Goal]:
        TEMPLATES.append(Template(subset, make.__name__, weight, memory, make))
        return make

    return register


@dataclass(frozen=True)
class Task:
    """A goal to be reached on a phone. `memory`: some right action depends on more than the goal and the screen.

    `instance` is the template and its slots: what the splits must not share. `seed` decides the set-up and the
    wording, so a task is the same every time.
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
        """Put the phone where the task begins."""
        self._goal.start(phone, random.Random(f"start {self.seed}"))
        phone.changed()

    def reached(self, phone: SimulatedPhone) -> bool:
        """Whether the phone is as the goal asks."""
        return self._goal.reached(phone)

    def solve(self, phone: SimulatedPhone, pixels: bool = True) -> tuple[Step, ...]:
        """The expert's steps on a phone that has been set up, ending in complete or impossible."""
        return Expert(phone, random.Random(f"finger {self.seed}"), pixels).follow(self._goal.plan)


def split_of(instance: str) -> str:
    """Where an instance belongs, for ever: 80 % train, 10 % validation, 10 % test."""
    number = int.from_bytes(hashlib.sha256(f"{SALT} {instance}".encode()).digest()[:8], "big") % 10
    return {8: "validation", 9: "test"}.get(number, "train")


def sample_task(subset: str, split: str, seed: int) -> Task:
    """A task of the subset whose instance belongs to the split; the same arguments give the same task.

    Raises ValueError for a subset or split that does not exist.
    """
    templates = [item for item in TEMPLATES if item.subset == subset]
    if not templates or split not in SPLITS:
        raise ValueError(f"there is no subset {subset!r} with a split {split!r}")
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
    raise RuntimeError(f"no instance of the template {chosen.name} is in {split}: give it more slots or change SALT")
