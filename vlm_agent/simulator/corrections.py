"""The expert beside an agent: what it would do on each screen that the agent reaches, on its own path or off it."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from vlm_agent.episodes import Action, ActionKind, Step
from vlm_agent.simulator.expert import BACK, HOME, MAX_STEPS, Expert, GoalScript, Intent, StuckError
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Task

DETOURS: tuple[tuple[Intent, ...], ...] = ((), (BACK,), (HOME,), (BACK, BACK))
"""How the expert returns to its path, the preferred way first."""


class Corrector:
    """The expert's remaining steps on each screen of one run of `task`.

    They are the shortest steps to the goal that begin with one of `DETOURS` and then follow the expert's script from
    one of its intents on. Each way is tried on a fork of the phone. A text is typed only if its words are in the goal
    or on a screen that was shown before, so what must be looked up is looked up.
    """

    def __init__(self, task: Task, solution: Sequence[Action]) -> None:
        """`solution`: the expert's actions from the start of the task."""
        self.task, self.solution = task, solution
        self._expected = len(solution) + 1
        self._intents: list[Intent] = []  # of the last steps, from that of the first step on
        self._known = _words([task.goal])

    def steps(self, phone: SimulatedPhone) -> tuple[Step, ...]:
        """The steps from the next one to the last, without pixels; empty where no way is found. Called once on each
        screen of the run, in order."""
        self._known |= _words(element.text for element in phone.elements())
        best: tuple[Step, ...] = ()
        for script in self._scripts(phone):
            best = self._tried(phone.fork(), script, len(best) - 1 if best else MAX_STEPS) or best
            # A step shortens the way by one step at most, so nothing shorter is found.
            if best and len(best) < self._expected:
                break
        self._expected = len(best) or self._expected + 1
        return best

    def _scripts(self, phone: SimulatedPhone) -> Iterator[GoalScript]:
        """What to try: the end, then the last steps again, without and with the intent that they began with."""
        for intents in ([], self._intents[1:], self._intents):
            yield lambda _, intents=intents: iter(intents)
        for detour in DETOURS:
            there = phone.fork()
            for intent in detour:
                there.perform(Action.press(intent.verb))
            for skipped in range(len(self.solution)):
                if _is_possible(next(islice(self.task.script(there), skipped, None), None), there):
                    yield partial(_resumed, self.task.script, detour, skipped)

    def _tried(self, phone: SimulatedPhone, script: GoalScript, limit: int) -> tuple[Step, ...]:
        rng = random.Random(f"finger {self.task.seed} {self._expected}")
        expert = Expert(phone, rng, pixels=False, limit=limit)
        try:
            steps = expert.follow(script)
        except StuckError:
            return ()
        if steps[-1].action != self.solution[-1] or not self.task.reached(phone) or not self._is_known(steps):
            return ()
        self._intents = [one for one in expert.intents[expert.pursued[0] :] if one.verb != "complete"]
        return steps

    def _is_known(self, steps: Iterable[Step]) -> bool:
        known = set(self._known)
        for step in steps:
            known |= _words(element.text for element in step.elements)
            if step.action.kind is ActionKind.TYPE and not _words([step.action.text]) <= known:
                return False
        return True


def _is_possible(intent: Intent | None, phone: SimulatedPhone) -> bool:
    """Whether the expert can begin with the intent; most are out of reach, which is seen without trying them."""
    if intent is None or intent.verb not in ("tap", "see") or phone.popup is not None or phone.shade:
        return intent is not None
    return phone.canvas().find(intent.what) is not None or intent.what in phone.canvas().hidden


def _resumed(script: GoalScript, detour: tuple[Intent, ...], skipped: int, phone: SimulatedPhone) -> Iterator[Intent]:
    yield from detour
    yield from islice(script(phone), skipped, None)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text.casefold())}
