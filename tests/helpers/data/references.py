"""Episodes whose steps name their episode, for references of a run, and references that need no encoder."""

from dataclasses import replace

from helpers import tiny

from vlm_agent.episodes import Episode
from vlm_agent.sentences.notes import ReferenceLines, reference_line

GOALS = ("open settings 0", "Open  settings 1", "open settings 1", "buy milk", "a clock")
"""The second and the third are one goal."""


def episode(name: str, goal: str, steps: int = len(tiny.ACTIONS)) -> Episode:
    made = tiny.episode(sum(map(ord, name)), tiny.ACTIONS[:steps])
    plans = [{"plan": f"rest-{name}", "step": f"step-{name}-{number}"} for number in range(steps)]
    changed = tuple(replace(step, notes={**step.notes, **plan}) for step, plan in zip(made.steps, plans, strict=True))
    return Episode(name, made.subset, goal, changed)


TRAIN = [episode(f"t{number}", goal, 3 + number % 3) for number, goal in enumerate(GOALS)]


class TwoReferences(ReferenceLines):
    """The same two for every goal."""

    def lines(self, goal: str, without: str) -> list[str]:
        return [reference_line("open settings", ["tap Wifi", "press back"]), reference_line("call", ["complete"])]
