"""The rounds of a run, and their files.

RUN/rounds/00007/plan.json        the tasks of the round, the settings that they were played with, the agent's weights
RUN/rounds/00007/waves/0003.json  the rollouts of a wave: tokens, their log-probabilities, outcomes; no screens
RUN/rounds/00007/scores.json      figures of the round, and successes and rollouts of each template

Every file has a checksum and is written at once. A killed run plays only the waves that are missing or damaged. The
tasks, and what is sampled, depend on the recipe's seed, the numbers of round, task, sample and step, and the weights.
"""

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from vlm_agent.errors import DatasetError, RecipeError, TrainingError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.recipe.reinforcement import ReinforcementRecipe
from vlm_agent.reinforcement.rollouts import Rollout
from vlm_agent.simulator import TEMPLATES, sample_task
from vlm_agent.simulator.demonstrations import phone_seed, subset_of
from vlm_agent.simulator.tasks import Template, check_templates
from vlm_agent.training.loop import ranks

_LOG = logging.getLogger(__name__)

WAVE = 32
"""Rollouts that are played together: a multiple of most numbers of samples, whose first screens are equal."""
FLOOR = 0.05
"""The share of tasks that the curriculum draws uniformly."""
FORGETTING = 0.9
"""The weight of the rollouts of a round in the success of a template, relative to those of the next one."""
REPLAY = "to play this round again, remove the checkpoints after its start, and run the same command again"


def practised_templates(recipe: ReinforcementRecipe) -> list[Template]:
    """The templates of tasks without those that are held out. Raises DeviceError for an unknown one, and RecipeError
    where none is left."""
    check_templates(recipe.held_out_templates, "reinforcement.held_out_templates")
    left = [template for template in TEMPLATES if template.name not in recipe.held_out_templates]
    if not left:
        raise RecipeError("reinforcement.held_out_templates names all templates; nothing is left to practise")
    return left


@dataclass(frozen=True)
class Round:
    """Round `number`, from 0, in the run folder `run`."""

    run: Path
    number: int
    recipe: ReinforcementRecipe
    seed: int

    @property
    def folder(self) -> Path:
        return self.run / "rounds" / f"{self.number:05d}"

    @property
    def sampling_seed(self) -> str:
        return f"{self.seed}/{self.number}"

    def earlier(self) -> Iterator["Round"]:
        """The rounds before it, newest first."""
        for number in reversed(range(self.number)):
            yield Round(self.run, number, self.recipe, self.seed)

    def scores(self) -> dict[str, Any]:
        """Raises DatasetError where the file is damaged."""
        return dict(read_checked(self.folder / "scores.json", REPLAY))

    def settings(self) -> dict[str, Any]:
        """What decides the rollouts of a round beside the weights."""
        return self.recipe.model_dump(mode="json", exclude={"rounds", "updates", "method", "reward"})

    # Tasks

    def tasks(self) -> list[str]:
        """The tasks of the round, SUBSET/SPLIT/SEED."""
        templates = practised_templates(self.recipe)
        weights = self._weights([template.name for template in templates])
        return [self._task(number, templates, weights) for number in range(self.recipe.tasks)]

    def _weights(self, names: Sequence[str]) -> list[float]:
        if self.recipe.curriculum == "uniform":
            return [1.0] * len(names)
        # One success and one failure more than there were: a template without a rollout is drawn most often.
        successes, rollouts = Counter[str](), Counter[str]()
        for age, earlier in enumerate(self.earlier()):
            for name, (won, played) in earlier.scores()["templates"].items():
                successes[name] += won * FORGETTING**age
                rollouts[name] += played * FORGETTING**age
        shares = [(successes[name] + 1) / (rollouts[name] + 2) for name in names]
        variances = [share * (1 - share) for share in shares]
        return [FLOOR / len(names) + (1 - FLOOR) * one / sum(variances) for one in variances]

    def _task(self, number: int, templates: Sequence[Template], weights: Sequence[float]) -> str:
        rng = random.Random(f"reinforcement {self.seed} {self.number} {number}")  # noqa: S311 (no secret)
        template = rng.choices(templates, weights)[0]
        while True:
            phone = phone_seed(rng.getrandbits(62), self.recipe.split)
            if subset_of(phone) == template.subset:
                task = sample_task(template.subset, self.recipe.split, phone)
                if task.template == template.name:
                    return f"{task.subset}/{task.split}/{task.seed}"

    # Rollouts

    def played(self, policy: str | None, play: Callable[[Sequence[tuple[str, int]]], list[Rollout]]) -> list[Rollout]:
        """All rollouts of the round, those that are not recorded played now, by all ranks. `policy`: the digest of the
        weights at its start; None: they have changed since, so that all must be recorded. A collective.

        Raises DatasetError for a wave that can no longer be played, TrainingError for settings that changed since then.
        """
        tasks = self._planned(policy)
        pairs = [(task, sample) for task in tasks for sample in range(self.recipe.samples)]
        waves = [pairs[at : at + WAVE] for at in range(0, len(pairs), WAVE)]
        for number in range(ranks.number(), len(waves), ranks.count()):
            if policy is not None and _known(self._wave(number)) is None:
                write_checked(self._wave(number), {"rollouts": [asdict(one) for one in play(waves[number])]})
        ranks.wait()
        records = (read_checked(self._wave(number), REPLAY)["rollouts"] for number in range(len(waves)))
        return [Rollout.of_record(record) for wave in records for record in wave]

    def _planned(self, policy: str | None) -> list[str]:
        """The tasks of the plan, which is written unless it is there. Rollouts of another plan are removed."""
        path = self.folder / "plan.json"
        if policy is None:
            plan = read_checked(path, REPLAY)
            for key, value in self.settings().items():
                if (played := plan["settings"].get(key)) != value:
                    before = f"reinforcement.{key} was {played} when round {self.number + 1} was played"
                    raise TrainingError(f"{before}: restore it until the updates of that round are made, or {REPLAY}")
            return list(plan["tasks"])
        tasks = self.tasks()
        plan = {"tasks": tasks, "settings": self.settings(), "seed": self.sampling_seed, "policy": policy}
        if ranks.number() == 0 and _known(path) != plan:
            shutil.rmtree(self.folder, ignore_errors=True)
            (self.folder / "waves").mkdir(parents=True)
            write_checked(path, plan)
        ranks.wait()
        return tasks

    def _wave(self, number: int) -> Path:
        return self.folder / "waves" / f"{number:04d}.json"

    # Scores

    def score(self, rollouts: Sequence[Rollout], groups: Mapping[str, float]) -> dict[str, float]:
        """Writes and returns the figures of the round. `groups`: those of its groups."""
        figures = {**figures_of(rollouts), **groups}
        templates = {
            name: [sum(bool(one.outcome.success) for one in played), len(played)]
            for name in sorted({one.template for one in rollouts})
            if (played := [one for one in rollouts if one.template == name])
        }
        if ranks.number() == 0:
            content = {"figures": figures, "templates": templates, "settings": self.settings()}
            write_checked(self.folder / "scores.json", content)
        ranks.wait()
        return figures


def figures_of(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Shares of all rollouts, and means. `ended_…`: of those that ended so (`Outcome.ended`)."""
    outcomes, count = [one.outcome for one in rollouts], len(rollouts)
    ends = Counter(one.ended for one in outcomes)
    return {
        "success": sum(bool(one.success) for one in outcomes) / count,
        "false_complete": sum(bool(one.false_complete) for one in outcomes) / count,
        "side_effect": sum(bool(one.side_effects) for one in outcomes) / count,
        "rollout_steps": fmean(one.steps for one in outcomes),
        "entropy": fmean(answer.entropy for one in rollouts for answer in one.answers),
        **{f"ended_{reason}": ends[reason] / count for reason in sorted(ends)},
    }


def _known(path: Path) -> dict | None:
    """The content of a file; None where it is missing, or damaged, which is reported."""
    try:
        return read_checked(path, "it is played again") if path.is_file() else None
    except DatasetError as damage:
        _LOG.warning("%s", damage)
        return None
