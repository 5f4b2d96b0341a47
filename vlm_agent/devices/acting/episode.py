"""One episode: an agent on a phone that is set up for a task, and its outcome.

Evaluation, reinforcement and environments share it, so that success has one definition:

    with task.open() as opened:
        ending, outcome = yield from episode_turns(opened, trace, guard, task.solution())
"""

import logging
from collections import Counter
from dataclasses import dataclass

from vlm_agent.datasets.sources.trace_writer import NoTrace, Trace
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Ending, Limits, ProposedStep, Run, Turns
from vlm_agent.devices.device import Device, DeviceTask, OpenedDevice, Solution
from vlm_agent.devices.errors import NotJudgedError
from vlm_agent.episodes import Action

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of an episode.

    `reached`: the phone was in the goal's state at the end. `success`: in addition, the agent declared the same end as
    the expert (complete or impossible), or complete where no expert is known. `ever_reached`: the phone was in the
    goal's state on any screen or at the end. `false_complete`: the agent declared the task complete without success.
    These are None where the phone could not be judged at the end, which is neither a success nor a failure.
    `side_effects`: see the function; None without an expert or if the phone cannot tell what lasts. `steps`: answers of
    the agent; `expert_steps`: the expert's actions, None if they are not known. `ended`: see `Ending.reason`.
    """

    success: bool | None
    reached: bool | None
    ever_reached: bool | None
    false_complete: bool | None
    side_effects: list[str] | None
    steps: int
    expert_steps: int | None
    ended: str


def allowed_steps(expert_steps: int) -> int:
    """The step limit of an agent: enough for detours, too few for trying everything."""
    return 2 * expert_steps + 4


def limits_of(solution: Solution | None) -> Limits:
    """`allowed_steps`, or the default limits without a solution."""
    return Limits() if solution is None else Limits(allowed_steps(len(solution.actions)))


def side_effects(start: Counter[str], solved: Counter[str], end: Counter[str]) -> list[str]:
    """What lasts at the `end` and neither at the `start` nor after the expert's solution (+), and the reverse (-): a
    line each. The arguments are from `OpenedDevice.durable`."""
    added, lost = end - (start | solved), (start & solved) - end
    return [f"{sign} {line}" for sign, lines in (("+", added), ("-", lost)) for line in sorted(lines.elements())]


def episode_turns(
    opened: OpenedDevice, trace: Trace, guard: Guard, solution: Solution | None = None, device: Device | None = None
) -> Turns[tuple[Ending, Outcome]]:
    """Plays the task of `opened` within `limits_of(solution)`; the caller answers. `device`: what the agent operates, a
    device around that of `opened`; by default that one. Raises ValueError if `opened` has no task."""
    if (task := opened.task) is None:
        raise ValueError(f"{opened.name} is not set up for a task")
    judged: list[bool | None] = [False]

    def look(_: ProposedStep) -> bool:
        if True not in judged and judged[-2:] != [None, None]:
            judged.append(_judged(task, opened.device))
        return False

    device = opened.device if device is None else device
    ending = yield from Run(device, task.goal, trace, guard, limits_of(solution), look).play()
    reached = _judged(task, opened.device)
    trace.judged(reached)
    complete = Action.complete().name
    is_declared = ending.reason == (complete if solution is None else solution.actions[-1].name)
    success = None if reached is None else reached and is_declared
    effects = None
    if solution is not None and opened.durable is not None:
        effects = side_effects(solution.start, solution.end, opened.durable())
    return ending, Outcome(
        success=success,
        reached=reached,
        ever_reached=None if reached is None else True in (*judged, reached),
        false_complete=None if success is None else ending.reason == complete and not success,
        side_effects=effects,
        steps=ending.steps,
        expert_steps=None if solution is None else len(solution.actions),
        ended=ending.reason,
    )


def untraced_turns(opened: OpenedDevice, name: str, solution: Solution | None) -> Turns[tuple[Ending, Outcome]]:
    """`episode_turns` on a phone where nothing can be bought, such as a simulated one, without a trace. `name`:
    distinguishes the run from others that the same agent answers at once."""
    return episode_turns(opened, NoTrace(name), Guard(allow_purchases=True, launcher=opened.launcher), solution)


def _judged(task: DeviceTask, device: Device) -> bool | None:
    try:
        return task.reached(device)
    except NotJudgedError as error:
        _LOG.warning("Not judged: %s", error)
        return None
