"""The task set `adb`: a YAML file of goals for a phone over ADB, which commands on the phone reset and judge.

    task_set: adb
    serial: 127.0.0.1:5600        # or none: the only connected phone
    goals:
      - goal: Install Chess
        reset: [[sh, -c, "pm uninstall org.chess || true"], [input, keyevent, "3"]]
        judge: [pm, path, org.chess]

A command is a list of words; neither this computer's shell nor the phone's reads them. For a pipe, use
[sh, -c, "dumpsys wifi | grep -q enabled"]. The judge runs on every screen, so it must not change the phone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from vlm_agent.devices.adb.link import ANSWER_SECONDS, TIMEOUTS
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.device import OpenedDevice, TaskWithoutExpert
from vlm_agent.devices.errors import ActionInDoubtError, DeviceError, DeviceLostError, NotJudgedError, RefusedError
from vlm_agent.devices.task_sets import TaskSet, check_split
from vlm_agent.settings import Section

Command = Annotated[tuple[str, ...], Field(min_length=1)]

_REACHED, _NOT_REACHED = 0, 1


class AdbGoal(Section):
    """`reset`: commands before each run; each prints something within 30 s, or ends. `judge`: exits with status
    0 if the goal is reached and 1 if it is not; with another status, or if it hangs, the task is not scored. `subset`:
    of Android in the Wild, in tables."""

    goal: str
    reset: tuple[Command, ...]
    judge: Command
    subset: str = "general"

    @field_validator("goal")
    @classmethod
    def _one_line(cls, goal: str) -> str:
        if not goal.strip() or not goal.isprintable():
            raise ValueError("must be one line of text")
        return goal


@dataclass(frozen=True)
class AdbTask(TaskWithoutExpert):
    """A `SetTask` and the `DeviceTask` of its phone. `number`: of the goal in the file, from 1."""

    goals: "AdbTasks"
    number: int

    @property
    def name(self) -> str:
        return f"goals/{self.number}"

    template = name

    @property
    def goal(self) -> str:
        return self._goal.goal

    @property
    def subset(self) -> str:
        return self._goal.subset

    @property
    def _goal(self) -> "AdbGoal":
        return self.goals.goals[self.number - 1]

    @contextmanager
    def open(self) -> Iterator[OpenedDevice]:
        """Raises RefusedError for a reset that fails or hangs, DeviceLostError for one that was cut."""
        with AdbPhone(self.goals.serial) as phone:
            try:
                for words in self._goal.reset:
                    phone.change(*words)
            except ActionInDoubtError as error:
                if isinstance(error.__cause__, TIMEOUTS):
                    what = f"{self.name}, reset: `{words[0]}` gave no output for {ANSWER_SECONDS:g} s or more"
                    remedy = "let it print something as it works, or run the same command again if the phone was gone"
                    raise RefusedError(f"{what}; {remedy}") from error
                what = f"{self.name}: the connection to {phone.serial} was cut during the reset"
                raise DeviceLostError(f"{what}; run the same command again, which resets the phone again") from error
            yield OpenedDevice(phone, phone.serial, self, packages=phone.packages, launcher=phone.launcher())

    def reached(self, phone: AdbPhone) -> bool:
        """Raises NotJudgedError if the judge hangs or exits with another status than 0 or 1."""
        try:
            answer = phone.query(*self._goal.judge)
        except RefusedError as error:
            raise NotJudgedError(f"{self.name}, {self.goal!r}: the judge hangs: {error}") from error
        if answer.status not in (_REACHED, _NOT_REACHED):
            output = " ".join(answer.text.split())[:200] or "no output"
            raise NotJudgedError(f"{self.name}, {self.goal!r}: the judge exits with status {answer.status}: {output}")
        return answer.status == _REACHED


class AdbTasks(TaskSet):
    """`serial`: as for `--device adb:SERIAL`. `split`: that all goals belong to."""

    at_once: ClassVar[int | None] = 1

    task_set: str = "adb"
    serial: str | None = None
    split: Literal["train", "validation", "test"] = "test"
    allow_purchases: bool = False
    goals: Annotated[tuple[AdbGoal, ...], Field(min_length=1)]

    def tasks(self, count: int, seed: int, split: str) -> Sequence[AdbTask]:
        check_split(split, (self.split,))
        if seed:
            raise DeviceError(f"--seed {seed} has no effect on the goals of a file; remove it")
        return [AdbTask(self, number) for number in range(1, min(count, len(self.goals)) + 1)]
