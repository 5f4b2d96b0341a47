"""The acting loop: screenshot, answer, guard, action, until the agent declares the end or a limit stops the run.

with TraceWriter(folder, heading) as trace:
    ending = act(agent, device, goal, trace, Guard())
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np

from vlm_agent.agents import ActsTogether, Agent, Answer, Asked, NoAnswerError, Turn
from vlm_agent.datasets.sources.trace_writer import Trace
from vlm_agent.datasets.sources.traces import DONE, FAILED, IN_DOUBT, UNPARSED, WITHHELD, TraceStep
from vlm_agent.devices import Device
from vlm_agent.devices.acting.guard import REFUSED, Guard, Proposal
from vlm_agent.devices.acting.purchases import KINDS_IN_PLACE
from vlm_agent.devices.errors import (
    ActionInDoubtError,
    DeviceError,
    NotPermittedError,
    RefusedError,
    UnknownAppError,
    UntypableTextError,
)
from vlm_agent.episodes import Action, ActionKind, Screen, UiElement, digest, is_black, is_same_screen

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

STEP_LIMIT, LOOP, NO_ACTION, STOPPED = "step_limit", "loop", "unparsed", "stopped"

_BLACK = (
    "the picture of the screen is black: a window that forbids pictures of itself, as in banking apps, or a display "
    "that is off. The agent sees nothing. Such steps are marked in the trace, and no training data are made of them"
)

_SAME_AGAIN = "the answer was not an action, and the screen is as it was: the same prompt would follow"


@dataclass(frozen=True)
class Limits:
    """Limits of a run.

    A run stops after `steps` steps, when the same action on the same screen occurs for the `repeats`-th time, and after
    `unparsed` consecutive answers that are not actions, each on another screen: on the same one it stops at once.
    """

    steps: int = 30
    repeats: int = 3
    unparsed: int = 3


@dataclass
class Ending:
    """The end of a run, and its counts.

    `reason`: complete or impossible if the agent declared it, otherwise the limit or guard that stopped the run (see
    `guard.py`). `steps`: the number of answers; `unparsed` of them were not actions, and `in_doubt` of the actions may
    or may not have been executed. `tokens`: (read, written) in total, `calls`: requests to a model; None if the agent
    does not count them. `seconds`: seconds of screen, agent and action, of a reply from disk those until it was
    received. `beyond_context`: answers beyond the context of the agent's model. `failed`: the actions that the phone
    did not perform, `black` the steps whose screenshot was black.
    """

    reason: str = ""
    message: str = ""
    steps: int = 0
    unparsed: int = 0
    in_doubt: int = 0
    tokens: tuple[int, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    calls: int | None = None
    beyond_context: int = 0
    failed: int = 0
    black: int = 0

    @property
    def is_declared(self) -> bool:
        return self.reason in (Action.complete().name, Action.impossible().name)

    def count(self, answer: Answer) -> None:
        """Adds a step with its tokens and calls."""
        tokens, calls = answer.usage.tokens, answer.usage.calls
        if self.steps:
            before = self.tokens
            tokens = None if before is None or tokens is None else (before[0] + tokens[0], before[1] + tokens[1])
            calls = None if self.calls is None or calls is None else self.calls + calls
        self.tokens, self.calls = tokens, calls
        self.steps += 1
        self.beyond_context += answer.diagnostics.beyond_context

    def add_seconds(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds


@dataclass(frozen=True)
class ProposedStep:
    """A step before its action is executed, for `watch`.

    `picture`: the file of its screenshot. `elements`: None if the phone does not provide them.
    """

    number: int
    picture: Path
    answer: Answer
    activity: str
    elements: tuple[UiElement, ...] | None = None


def act(
    agent: Agent,
    device: Device,
    goal: str,
    trace: Trace,
    guard: Guard,
    limits: Limits = Limits(),
    watch: Callable[[ProposedStep], bool] = lambda _: False,
    warn: Callable[[str], None] = _LOG.warning,
) -> Ending:
    """Runs the agent on the device and writes every step to the trace.

    `watch` is called with every step before its action is executed; the run stops if it returns True. If the connection
    breaks during an action, the action is not repeated: the agent sees the next screen and decides. An action that the
    phone refuses changes nothing, such as opening an app that it does not have, and the run continues. `warn` gets
    messages for the user; by default they are logged.

    Raises DeviceError if the phone is lost, NoAnswerError if the agent fails, and every exception of the agent. The
    trace is complete in each case.
    """
    return answered(Run(device, goal, trace, guard, limits, watch, warn).play(), agent)


Turns = Generator[Asked, tuple[Answer, float], Result]
"""What an agent is asked, one step after the other; each answer is sent with the seconds that it took."""


def answered(turns: Turns[Result], agent: Agent) -> Result:
    """The result of a run whose questions `agent` answers."""
    try:
        asked = next(turns)
        while True:
            start = time.perf_counter()
            try:
                answer = agent.act(*asked)
            except BaseException as error:
                turns.throw(error)
                raise
            asked = turns.send((answer, time.perf_counter() - start))
    except StopIteration as end:
        return end.value


def answered_together(
    runs: Iterable[Turns[Result]], agent: ActsTogether, phones: int
) -> Iterator[tuple[int, Result | NoAnswerError]]:
    """The number and the result of each run as it ends, or the error of an agent that could not answer. `phones` runs
    are asked at once; the next run begins where one has ended."""
    waiting, playing = enumerate(runs), list[tuple[int, Turns[Result], Asked]]()
    while True:
        playing += [(number, run, next(run)) for number, run in islice(waiting, phones - len(playing))]
        if not playing:
            return
        start = time.perf_counter()
        try:
            answers = agent.act([asked for _, _, asked in playing])
        except BaseException as error:
            for _, run, _ in playing:
                with suppress(type(error)):
                    run.throw(error)
            raise
        seconds, before, playing = (time.perf_counter() - start) / len(playing), playing, []
        for (number, run, _), answer in zip(before, answers, strict=True):
            try:
                playing.append((number, run, run.send((answer, seconds))))
            except StopIteration as end:
                yield number, end.value
            except NoAnswerError as error:
                yield number, error


@dataclass
class Run:
    """`act` without an agent: the caller of `play` answers."""

    device: Device
    goal: str
    trace: Trace
    guard: Guard
    limits: Limits
    watch: Callable[[ProposedStep], bool]
    warn: Callable[[str], None] = _LOG.warning
    history: list[Turn] = field(default_factory=list)
    ending: Ending = field(default_factory=Ending)
    unread: list[Screen] = field(default_factory=list)
    """The screens since the last action, each with an answer that was not an action."""
    unread_because: str = ""
    repetitions: Counter[tuple[bytes, Action]] = field(default_factory=Counter)

    def play(self) -> Turns[Ending]:
        while True:
            if self.ending.steps == self.limits.steps:
                return self._end(STEP_LIMIT, f"stopped at the limit of {self.ending.steps} steps")
            if (end := (yield from self._step())) is not None:
                return self._end(*end)

    def _step(self) -> Turns[tuple[str, str] | None]:
        """(reason, message) if the run ends with this step, else None."""
        start = time.perf_counter()
        pixels, elements = self.device.screenshot(), self._elements()
        number = self.ending.steps
        screen = Screen(pixels, elements, self.device.activity, episode=self.trace.id, step=number)
        seconds = {"screen": time.perf_counter() - start}
        if self.history:  # the effect of the last action, before a control hides the screens
            last = self.history[-1]
            changed = not last.failed and not is_same_screen(last.screen, screen)
            self.history[-1] = replace(last, changed=changed)
        if any(_are_equal(screen, other) for other in self.unread):
            # An agent has no other input but the number of the step.
            return NO_ACTION, _SAME_AGAIN + self.unread_because
        answer, spent = yield Asked(self.goal, tuple(self.history), screen)
        seconds["agent"] = spent + answer.diagnostics.seconds_on_disk
        if answer.failed is not None:
            raise NoAnswerError(answer.failed)
        for part, duration in seconds.items():
            self.ending.add_seconds(part, duration)
        self.ending.count(answer)
        picture = self.trace.screen(number, pixels, elements)
        step = TraceStep(number, picture.name, screen.activity, elements, answer.text, answer.action)
        step = replace(step, notes=answer.notes, tokens=answer.usage.tokens, seconds=seconds)
        self.trace.step(replace(step, black=self._counts_black(pixels)), answer.diagnostics.types_later)
        if self.watch(ProposedStep(number, picture, answer, screen.activity, elements)):
            self.trace.outcome(number, WITHHELD)
            return STOPPED, "stopped by a key"
        if answer.action is None:
            return self._no_action(number, screen, answer)
        self.unread.clear()
        refusal = self._loop(pixels, answer.action)
        if refusal is None:
            typed = _typed_before(self.history)
            proposal = Proposal(number, self.goal, screen.activity, elements, answer.action, typed)
            refusal = self.guard.refusal(proposal)
        if refusal is not None:
            self.trace.outcome(number, WITHHELD)
            return refusal
        try:
            outcome = self._perform(number, answer.action)
        except NotPermittedError as error:
            return REFUSED, str(error)
        turn = Turn(screen, answer, answer.action, answer.notes, outcome == IN_DOUBT, failed=outcome == FAILED)
        self.history.append(turn)
        return (answer.action.name, "") if answer.action.is_status else None

    def _elements(self) -> tuple[UiElement, ...] | None:
        """What the phone reports: nothing where a phone that reports elements fails to, as while a video plays."""
        elements = self.device.elements()
        if elements is None and any(turn.screen.elements is not None for turn in self.history):
            return ()
        return elements

    def _counts_black(self, pixels: np.ndarray) -> bool:
        """Whether the screen is black. Warns at the first one."""
        if black := is_black(pixels):
            self.ending.black += 1
            if self.ending.black == 1:
                self.warn(f"Step {self.ending.steps}: {_BLACK}.")
        return black

    def _no_action(self, number: int, screen: Screen, answer: Answer) -> tuple[str, str] | None:
        self.trace.outcome(number, UNPARSED)
        self.ending.unparsed += 1
        self.unread.append(screen)
        notes = ", ".join(note for reply in answer.diagnostics.replies for note in reply)
        self.unread_because = f"; the last reply: {notes}" if notes else ""
        if len(self.unread) < self.limits.unparsed:
            return None
        return NO_ACTION, f"{len(self.unread)} consecutive answers were not actions{self.unread_because}"

    def _loop(self, pixels: np.ndarray, action: Action) -> tuple[str, str] | None:
        key = (digest(pixels), action)
        self.repetitions[key] += 1
        if self.repetitions[key] < self.limits.repeats:
            return None
        return LOOP, f"the same action on the same screen {self.repetitions[key]} times"

    def _perform(self, number: int, action: Action) -> str:
        """The outcome: DONE, IN_DOUBT or FAILED."""
        start, outcome, message = time.perf_counter(), IN_DOUBT, ""
        try:
            self.device.perform(action)
            outcome = DONE
        except ActionInDoubtError:
            self.ending.in_doubt += 1
        except (RefusedError, UnknownAppError, UntypableTextError) as error:
            # The agent sees the unchanged screen next; the loop limit ends repeats.
            outcome, message = FAILED, str(error)
            self.ending.failed += 1
            self.warn(f"Step {number + 1} failed, the phone did not perform it: {message}")
        except DeviceError as error:
            outcome, message = WITHHELD if isinstance(error, NotPermittedError) else FAILED, str(error)
            raise
        finally:
            seconds = time.perf_counter() - start
            self.ending.add_seconds("action", seconds)
            self.trace.outcome(number, outcome, seconds, message)
        return outcome

    def _end(self, reason: str, message: str) -> Ending:
        end = self.ending
        end.reason, end.message = reason, message
        counts = {"steps": end.steps, "unparsed": end.unparsed, "in_doubt": end.in_doubt}
        self.trace.end(reason, message, **counts, tokens=end.tokens, seconds=end.seconds)
        return end


def _typed_before(history: Sequence[Turn]) -> str:
    """The texts of the last turns, as far as they are typed one after the other, also with waiting in between."""
    last = takewhile(lambda turn: turn.action.kind in (ActionKind.TYPE, *KINDS_IN_PLACE), reversed(history))
    return "".join(reversed([turn.action.text for turn in last if turn.action.kind is ActionKind.TYPE]))


def _are_equal(first: Screen, second: Screen) -> bool:
    """Whether an agent sees the same, to the pixel."""
    if first.pixels is None or second.pixels is None or not np.array_equal(first.pixels, second.pixels):
        return False
    return (first.elements, first.activity) == (second.elements, second.activity)
