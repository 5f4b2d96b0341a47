"""Plans in place of planning calls: episode id → the plan and the immediate step at each step.

From a JSON file of steps in words, one for each action,

    {"general/123": ["Open the clock app", "Click on the tab Alarm", "Declare the task complete"]}

where the plan at turn n is line n and those after it; numbers before the lines are left out. Or from a folder of shards
whose steps have plans (`Step.notes`), which know the screens until their own.
"""

from collections.abc import Mapping
from pathlib import Path

from vlm_agent.agents.llm.replies import JSON, Plan, plan_line
from vlm_agent.errors import UserError
from vlm_agent.texts.lines import one_line


class PlansError(UserError):
    """A file or folder of plans that cannot be used; the message names it and the episode."""


Plans = Mapping[str, tuple[Plan, ...]]


def read_plans(path: Path) -> Plans:
    """Raises PlansError for anything but texts by episode, DatasetError for a folder that does not hold shards.

    An episode of shards in which a step has no immediate step is left out.
    """
    return _of_shards(path) if path.is_dir() else _of_file(path)


def _of_shards(folder: Path) -> Plans:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.datasets.shards.schema import IN_STEPS, notes_of

    table = ShardDataset(folder).table(["episode_id", f"{IN_STEPS}notes"])
    plans = {}
    for episode, steps in zip(table["episode_id"].to_pylist(), table["steps"].to_pylist(), strict=True):
        known = tuple(_of_step(notes_of(step["notes"])) for step in steps)
        if all(plan.step for plan in known):
            plans[episode] = known
    if not plans:
        raise PlansError(
            f"{folder} has no episode with a plan at every step; write plans with `vlm-agent annotate {folder} "
            "--texts plan`, or choose another folder"
        )
    return plans


def _of_step(notes: Mapping[str, str]) -> Plan:
    lines = map(one_line, notes.get("plan", "").split("\n"))
    return Plan(tuple(filter(None, lines)), one_line(notes.get("step", "")))


def _of_file(path: Path) -> Plans:
    try:
        content = JSON.decode(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise PlansError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise PlansError(f"{path} is not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise PlansError(f"{path} must hold an object: episode id → list of steps")
    return {episode: _steps(steps, f"{path}: episode {episode}") for episode, steps in content.items()}


def _steps(steps: object, where: str) -> tuple[Plan, ...]:
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step.strip() for step in steps):
        raise PlansError(f"{where} must have a list of steps, each a text that is not empty")
    lines = tuple(plan_line(step) or one_line(step) for step in steps)
    return tuple(Plan(lines[number:], line) for number, line in enumerate(lines))
