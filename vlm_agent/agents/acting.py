"""An agent acts on a phone: screen, answer, leave to do it, action, until it says that it is done or must stop.

with TraceWriter(folder, heading) as trace:
    ending = act(agent, device, goal, trace, Guard())
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vlm_agent.agents import Agent, Answer
from vlm_agent.agents.guard import Guard, Proposal
from vlm_agent.datasets.trace_lines import DONE, FAILED, IN_DOUBT, UNPARSED, WITHHELD, TraceStep
from vlm_agent.datasets.trace_writer import TraceWriter
from vlm_agent.devices import Device
from vlm_agent.devices.errors import ActionInDoubtError, DeviceError
from vlm_agent.episodes import Action, Step

STEP_LIMIT, LOOP, NO_ACTION, STOPPED = "step_limit", "loop", "unparsed", "stopped"

_STATUS_BAR = 20
"""One part in so many of a screen's height: a clock there makes no screen another one."""


@dataclass(frozen=True)
class Limits:
    """When to stop: after so many `steps`; when the same is done on the same screen `repeats` times; after so
    many answers in a row that are no action."""

    steps: int = 30
    repeats: int = 3
    unparsed: int = 3


@dataclass(frozen=True)
class Ending:
    """`reason`: complete or impossible where the agent said so, otherwise why it was stopped (`guard.py` has more).

    `steps` counts answers, of which `unparsed` were no action and `in_doubt` may have been done or not. `tokens` are
    (read, said) in all; None where the agent does not tell. `seconds` were spent on screens, the agent, and actions.
    """

    reason: str
    message: str
    steps: int
    unparsed: int
    in_doubt: int
    tokens: tuple[int, int] | None
    seconds: dict[str, float]

    @property
    def is_declared(self) -> bool:
        return self.reason in (Action.complete().name, Action.impossible().name)


@dataclass(frozen=True)
class Shown:
    """One step for whoever watches, before it is done: `screen` is its picture's file."""

    number: int
    screen: Path
    answer: Answer
    activity: str


def nobody_watches(_: Shown) -> bool:
    return False


def act(
    agent: Agent,
    device: Device,
    goal: str,
    trace: TraceWriter,
    guard: Guard,
    limits: Limits = Limits(),
    watch: Callable[[Shown], bool] = nobody_watches,
) -> Ending:
    """Has the agent do the goal on the device, and the trace tell of it.

    `watch` sees every step before it is done, and stops the run by returning True. An action that a cut connection
    leaves in doubt is not done again: the agent sees the next screen and decides. Raises DeviceError when the phone is
    lost or does not take an action, and what the agent raises; the trace is whole then too.
    """
    return _Run(agent, device, goal, trace, guard, limits, watch).to_its_end()


@dataclass
class _Run:
    agent: Agent
    device: Device
    goal: str
    trace: TraceWriter
    guard: Guard
    limits: Limits
    watch: Callable[[Shown], bool]
    history: list[Step] = field(default_factory=list)
    steps: int = 0
    unparsed: int = 0
    unparsed_in_a_row: int = 0
    in_doubt: int = 0
    tokens: list[tuple[int, int] | None] = field(default_factory=list)
    seconds: Counter = field(default_factory=Counter)
    done_on: Counter = field(default_factory=Counter)

    def to_its_end(self) -> Ending:
        while True:
            if self.steps == self.limits.steps:
                return self._end(STEP_LIMIT, f"no end after {self.steps} steps")
            if (why := self._step()) is not None:
                return self._end(*why)

    def _step(self) -> tuple[str, str] | None:
        """Why the run ends with this step; None where it goes on."""
        began = time.perf_counter()
        pixels, elements = self.device.screenshot(), self.device.elements()
        seen = time.perf_counter()
        answer = self.agent.act(self.goal, self.history, pixels)
        seconds = {"screen": seen - began, "agent": time.perf_counter() - seen}
        self.seconds.update(seconds)
        self.tokens.append(answer.tokens)
        number, activity = self.steps, self.device.activity
        self.steps += 1
        screen = self.trace.screen(number, pixels)
        told = (number, screen.name, activity, elements, answer.text, answer.action)
        self.trace.step(TraceStep(*told, tokens=answer.tokens, seconds=seconds))
        if self.watch(Shown(number, screen, answer, activity)):
            self.trace.outcome(number, WITHHELD)
            return STOPPED, "stopped by a key"
        if answer.action is None:
            return self._no_action(number)
        self.unparsed_in_a_row = 0
        why = self._looping(pixels, answer.action)
        if why is None:
            why = self.guard.refusal(Proposal(number, self.goal, activity, elements, answer.action))
        if why is not None:
            self.trace.outcome(number, WITHHELD)
            return why
        self._perform(number, answer.action)
        self.history.append(Step(pixels, answer.action, elements or (), activity))
        return (answer.action.name, "") if answer.action.is_status else None

    def _no_action(self, number: int) -> tuple[str, str] | None:
        self.trace.outcome(number, UNPARSED)
        self.unparsed += 1
        self.unparsed_in_a_row += 1
        if self.unparsed_in_a_row < self.limits.unparsed:
            return None
        return NO_ACTION, f"{self.unparsed_in_a_row} answers in a row were no action"

    def _looping(self, pixels: np.ndarray, action: Action) -> tuple[str, str] | None:
        below = np.ascontiguousarray(pixels[len(pixels) // _STATUS_BAR :])
        key = (hashlib.sha256(below).digest(), action)
        self.done_on[key] += 1
        if self.done_on[key] < self.limits.repeats:
            return None
        return LOOP, f"the same action on the same screen {self.done_on[key]} times"

    def _perform(self, number: int, action: Action) -> None:
        began, outcome = time.perf_counter(), IN_DOUBT
        try:
            self.device.perform(action)
            outcome = DONE
        except ActionInDoubtError:
            self.in_doubt += 1
        except DeviceError:
            outcome = FAILED
            raise
        finally:
            seconds = time.perf_counter() - began
            self.seconds["action"] += seconds
            self.trace.outcome(number, outcome, seconds)

    def _end(self, reason: str, message: str) -> Ending:
        tokens = None
        if self.tokens and None not in self.tokens:
            tokens = tuple(map(sum, zip(*self.tokens, strict=True)))
        ending = Ending(reason, message, self.steps, self.unparsed, self.in_doubt, tokens, dict(self.seconds))
        counts = {"steps": self.steps, "unparsed": self.unparsed, "in_doubt": self.in_doubt}
        self.trace.end(reason, message, **counts, tokens=tokens, seconds=ending.seconds)
        return ending
