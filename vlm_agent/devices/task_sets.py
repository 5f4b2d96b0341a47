"""Task sets: goals that phones can judge, each on a phone that is reset for it.

A set is named by its kind, or by a YAML file whose key `task_set` is the kind:

    read_task_set("browser").tasks(100, seed=0, split="test")
"""

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from vlm_agent.devices.device import HasGoal, OpenedDevice, Solution
from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Episode
from vlm_agent.recipe.yaml_file import read_mapping, validated
from vlm_agent.settings import Registry, Section

SPLITS = ("train", "validation", "test")

SALT = "14432"
"""Salt of the hash that assigns instances to splits, chosen so that every template of the simulated phone has instances
in every split. Changing it changes the data sets."""


def split_of(instance: str) -> str:
    """The split of a goal's instance by its hash: 80 % train, 10 % validation, 10 % test."""
    number = int.from_bytes(hashlib.sha256(f"{SALT} {instance}".encode()).digest()[:8], "big") % 10
    return {8: "validation", 9: "test"}.get(number, "train")


class SetTask(HasGoal, Protocol):
    """A task of a set."""

    @property
    def name(self) -> str:
        """Distinguishes the task from others of its set, such as general/test/7."""

    @property
    def template(self) -> str:
        """The name of the template that the goal is an instance of."""

    @property
    def memory(self) -> bool:
        """Whether some correct action depends on more than the goal and the current screen."""

    def open(self) -> AbstractContextManager[OpenedDevice]:
        """A phone at the start of the task; every call opens one in the same state."""

    def solution(self) -> Solution | None:
        """The expert's; None if there is none for the task."""

    def demonstration(self) -> Episode | None:
        """The expert's solution with its screens; None if there is none for the task."""


class TaskSet(Section):
    """Settings of a set. `at_once`: how many of its phones can be used at once, None for any number. `has_expert`:
    whether every task has a solution. `allow_purchases`: whether actions that could spend money are performed; without
    it they end a run."""

    at_once: ClassVar[int | None] = None
    has_expert: ClassVar[bool] = False

    task_set: str
    allow_purchases: bool = True

    def tasks(self, count: int, seed: int, split: str) -> Sequence[SetTask]:
        """The first `count` tasks of a seed and split, or all if there are fewer; a larger count only adds tasks. The
        samples of one have its name before #. Raises DeviceError for a split or a seed that the set does not have."""
        raise NotImplementedError


TASK_SETS: Registry[type[TaskSet]] = Registry(
    "vlm_agent.task_sets",
    {
        "simulated": "vlm_agent.simulator.task_set:SimulatedTasks",
        "browser": "vlm_agent.devices.browser.task_set:BrowserTasks",
        "adb": "vlm_agent.devices.adb.task_set:AdbTasks",
    },
    subclass_of=TaskSet,
)
"""Kind → its settings."""


DEFAULT = "simulated"


def read_task_set(name: str = DEFAULT, overrides: Mapping[str, Any] | None = None) -> TaskSet:
    """The set of this kind, or of a YAML file. `overrides`: values of its keys, which take precedence.

    Raises DeviceError that names the file and every key that is unknown, missing or wrong.
    """
    if name not in TASK_SETS and not Path(name).is_file():
        raise DeviceError(
            f"{name!r} is neither a task set ({', '.join(TASK_SETS)}) nor a file; goals for a phone with an address "
            "are a YAML file, where the key judge of each goal is the command that decides whether it is reached"
        )
    content: dict[str, Any] = {"task_set": name} if name in TASK_SETS else read_mapping(Path(name), DeviceError)
    kind = content.get("task_set")
    if not isinstance(kind, str) or kind not in TASK_SETS:
        nearest = difflib.get_close_matches(str(kind), TASK_SETS, n=1, cutoff=0)[0]
        raise DeviceError(f"{name}: task_set is {kind!r}; use {', '.join(TASK_SETS)}. Did you mean {nearest}?")
    return validated(TASK_SETS[kind], content | dict(overrides or {}), name, DeviceError)


def check_split(split: str, splits: Sequence[str] = SPLITS) -> None:
    """Raises DeviceError for a split that is not one of `splits`."""
    if split not in splits:
        raise DeviceError(f"the tasks have no split {split!r}; use {', '.join(splits)}")
