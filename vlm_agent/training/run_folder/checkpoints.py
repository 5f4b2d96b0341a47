"""Complete checkpoints: which one to resume from, which to keep, which is the best.

A checkpoint is complete once its record is written (`checkpoint_record`). The run folder keeps the newest complete
ones, two or as many as the recipe says, and the best of all; an older one is removed only after a newer one is safe on
disk.

All ranks must see the same folder. Our files are read with `weights_only` (no code in a pickle is run), but DeepSpeed
reads its own as pickles: resume only runs of your own.
"""

import hashlib
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from vlm_agent.errors import TrainingError
from vlm_agent.models.run_layout import CHECKPOINT_RECORD
from vlm_agent.models.weights.origin import keys_of_folders
from vlm_agent.recipe.model import SOURCES
from vlm_agent.recipe.run import NEWEST_KEPT, Recipe, TrainingRecipe
from vlm_agent.training.loop import ranks
from vlm_agent.training.run_folder.checkpoint_record import DamagedError, check, read_record, record_validation, seal

if TYPE_CHECKING:
    from vlm_agent.training.engine import Engine

_NAME = re.compile(r"checkpoint-(\d+)")
_RANDOM_STATE = "rng_state_{}.pth"
_SET_ASIDE = re.compile(r"checkpoint-(\d+)\.damaged(-\d+)?")
_MAY_CHANGE = {
    "output",
    *("data.shards", "data.workers"),
    *("data.features", "data.chats"),  # the sha256 of their files is in that of the data
    *("training.log_steps", "training.track", "training.save_steps", "training.save_seconds"),
    *("training.keep_checkpoints", "training.accumulation"),
    *(f"reinforcement.{key}" for key in ("temperature", "samples", "curriculum", "all_fail")),
    *(f"model.{source}.{key}" for source in SOURCES for key in ("revision", "published_as")),
}
"""Recipe keys that a resumed run may change. `identity_of` checks accumulation x ranks in place of accumulation, and
the commit in RUN/sources.json is compared in place of a revision."""


def identity_of(recipe: Recipe, data_digest: str, rank_count: int) -> dict[str, str | int | float | bool | list | None]:
    """Everything that decides a run's weights and its best checkpoint: recipe keys, data, and packs per step.

    Half the ranks may resume with twice the accumulation, except under DeepSpeed, whose checkpoints are sharded by
    rank.
    """
    identity = decisive_keys(recipe)
    identity["sha256 of the data"] = data_digest
    identity["packs in a step (accumulation x ranks)"] = recipe.training.accumulation * rank_count
    deepspeed = recipe.training.deepspeed_file
    if deepspeed is not None:
        identity["ranks, as DeepSpeed's checkpoints are cut by them"] = rank_count
        identity["sha256 of training.deepspeed"] = hashlib.sha256(deepspeed.read_bytes()).hexdigest()
    return identity


def decisive_keys(recipe: Recipe) -> dict[str, str | int | float | bool | list | None]:
    """The recipe's dotted keys and values, without those that a resumed run may change."""
    keys = dotted(recipe.model_dump(mode="json"))
    return {key: value for key, value in keys if key not in _MAY_CHANGE}


def dotted(section: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested settings: `training.steps`, 100."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def resume_point(
    folder: Path, identity: Mapping, say: Callable[[str], None], recipe: Recipe | None = None
) -> Path | None:
    """The checkpoint to resume from, or None to start from step 0. A collective: every rank calls it.

    `recipe`: the bases that it names may lie in other folders than those of the checkpoint. Raises TrainingError where
    the newest whole checkpoint has another identity.
    """
    found = newest_whole(folder, say)
    if found is None:
        return None
    refusal = ranks.from_rank_0(_unlike(found, identity, recipe) if ranks.number() == 0 else None)
    if refusal is not None:
        raise TrainingError(refusal)
    return found


def _unlike(checkpoint: Path, identity: Mapping, recipe: Recipe | None) -> str | None:
    """Why a run of this identity cannot resume from the checkpoint; None if it can."""
    there = {key: value for key, value in read_record(checkpoint)["identity"].items() if key not in _MAY_CHANGE}
    if recipe is not None:
        moved = keys_of_folders(checkpoint.parent.parent, recipe.model)
        there = {key: identity.get(key) if key in moved else value for key, value in there.items()}
    differences = [
        f"  {key}: {there.get(key)} in the checkpoint, {identity.get(key)} now"
        for key in sorted({*there, *identity})
        if there.get(key) != identity.get(key)
    ]
    if not differences:
        return None
    return "\n".join(
        [f"{checkpoint} is of a run with other settings; restore its values, or choose another output:", *differences]
    )


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose every byte is intact. A collective.

    Newer ones that are damaged or incomplete are reported and renamed to `checkpoint-N.damaged`, so that nothing loads
    or overwrites them. Rank 0 does that, and lists the folder, which other machines may see a moment later.
    """
    for name in ranks.from_rank_0([path.name for path in reversed(_checkpoints(folder))]):
        checkpoint = folder / name
        try:
            check(checkpoint)
        except DamagedError as damage:
            if ranks.number() == 0:
                aside = _set_aside(checkpoint)
                say(f"{checkpoint} is damaged and not used: {damage}. It is kept as {aside.name}")
        else:
            return checkpoint
    return None


def _set_aside(checkpoint: Path) -> Path:
    aside, number = checkpoint.with_name(f"{checkpoint.name}.damaged"), 1
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{checkpoint.name}.damaged-{number}")
    return checkpoint.rename(aside)


def best(folder: Path) -> Path | None:
    """The checkpoint with the highest exact action accuracy in validation, with the lowest loss on a tie."""
    scored = [(_score(validation), path) for path, validation in _validated(folder)]
    return max(scored)[1] if scored else None


def is_better(folder: Path, validation: Mapping) -> bool:
    """Whether these figures are better than those of every checkpoint."""
    return all(_score(validation) > _score(other) for _, other in _validated(folder))


def _score(validation: Mapping) -> tuple[float, float]:
    return validation["eval_accuracy"], -validation["eval_loss"]


def _validated(folder: Path) -> list[tuple[Path, dict]]:
    figures = [(path, record["validation"]) for path, record in _recorded(folder)]
    return [(path, validation) for path, validation in figures if validation is not None]


def rotate(folder: Path, say: Callable[[str], None], newest: int = NEWEST_KEPT) -> None:
    """Removes checkpoints older than the `newest` complete ones, except the best."""
    whole = [path for path, _ in _recorded(folder)]
    if len(whole) < newest:
        return
    kept = {*whole[-newest:], best(folder)}
    for checkpoint in _checkpoints(folder):
        if checkpoint not in kept and step_of(checkpoint) < step_of(whole[-newest]):
            _remove(checkpoint)
    for aside in folder.glob("checkpoint-*.damaged*"):
        match = _SET_ASIDE.fullmatch(aside.name)
        if match and int(match[1]) < step_of(whole[-newest]):
            say(f"{aside} is removed: there are {newest} newer complete checkpoints")
            _remove(aside)


def _remove(checkpoint: Path) -> None:
    """Removes the record first, so that a kill in between leaves nothing that looks complete."""
    (checkpoint / CHECKPOINT_RECORD).unlink(missing_ok=True)
    shutil.rmtree(checkpoint)


def _recorded(folder: Path) -> list[tuple[Path, dict]]:
    """The checkpoints that have a record, oldest first; their files are not read."""
    found = []
    for checkpoint in _checkpoints(folder):
        try:
            found.append((checkpoint, read_record(checkpoint)))
        except DamagedError:
            continue  # incomplete: `newest_whole` reports it
    return found


def _checkpoints(folder: Path) -> list[Path]:
    """Folders named `checkpoint-N`, oldest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


class Checkpoints:
    """When to write a checkpoint, and how.

    RUN/checkpoints/checkpoint-N/
        the trained weights, under the names of RUN/model/
        optimizer.pt         the states of the optimiser; under DeepSpeed instead its own files, one of each rank
        rng_state_R.pth      the random number generators of rank R
        whole.json           the record, written last (`checkpoint_record.py`)

    The learning rate and the position in the stream follow from the number of steps. A run that a signal stopped before
    the validation at its step resumes with it.
    """

    def __init__(
        self, folder: Path, identity: Mapping, packs_per_step: int, say: Callable[[str], None], recipe: TrainingRecipe
    ) -> None:
        self.folder, self.identity, self.packs_per_step, self.say = folder, identity, packs_per_step, say
        self.recipe = recipe
        self._saved = time.monotonic()
        self._validated: tuple[int, dict] | None = None

    def resume(self, checkpoint: Path, engine: "Engine") -> None:
        """Restores weights, optimiser and random state. A collective."""
        engine.load(checkpoint)
        own = checkpoint / _RANDOM_STATE.format(ranks.number())
        if own.is_file():  # a run may resume on more ranks than before
            restore(torch.load(own, weights_only=True))
        self._saved = time.monotonic()

    def lacks_validation(self, step: int) -> bool:
        """Whether a run that resumes after `step` validates first. A collective."""
        validation = self.recipe.validation
        if step == 0 or validation is None or step % validation.steps:
            return False
        return ranks.from_rank_0(ranks.number() == 0 and read_record(self._at(step))["validation"] is None)

    def add_validation(self, step: int, figures: Mapping) -> None:
        """Records the figures of a validation in the checkpoint that lacks them."""
        if ranks.number() == 0:
            record_validation(self._at(step), figures)

    @property
    def is_old(self) -> bool:
        """Whether the newest is `save_seconds` old, by the clock of rank 0; False on the others."""
        seconds = self.recipe.save_seconds
        return ranks.number() == 0 and seconds is not None and time.monotonic() - self._saved >= seconds

    def is_due(self, step: int, steps: int, validation: Mapping | None, is_old: bool) -> bool:
        """Whether to save after `step` of `steps`: regularly, at the end, after the best validation so far, and where
        the newest `is_old` on rank 0. A collective after a validation. `validation`: the figures of one after this
        step."""
        if validation is not None:
            self._validated = (step, dict(validation))
        every = self.recipe.save_steps
        if is_old or (every is not None and step % every == 0):
            return True
        if step == steps and (every is not None or self.recipe.save_seconds is not None):
            return True
        # Rank 0's files decide.
        return validation is not None and ranks.from_rank_0(ranks.number() == 0 and is_better(self.folder, validation))

    def save(self, step: int, engine: "Engine") -> None:
        """Seals once all ranks have written their files. None trains on before the record is written."""
        checkpoint = self._at(step)
        checkpoint.mkdir(parents=True, exist_ok=True)
        engine.save(checkpoint)
        torch.save(random_state(), checkpoint / _RANDOM_STATE.format(ranks.number()))
        ranks.wait()
        validation = self._validated[1] if self._validated and self._validated[0] == step else None
        seal(checkpoint, step, step * self.packs_per_step, self.identity, validation)
        if ranks.number() == 0:
            rotate(self.folder, self.say, self.recipe.keep_checkpoints)
        ranks.wait()
        self._saved = time.monotonic()

    def _at(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"


# The random number generators that a step may draw from.


def random_state() -> dict[str, Any]:
    """The state of this process, of plain values and tensors, which `torch.load` reads without running code."""
    kind, keys, *rest = cast(tuple, np.random.get_state())  # noqa: NPY002 (the state of libraries that use it)
    state = {"python": random.getstate(), "numpy": (kind, keys.tolist(), *rest), "torch": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def restore(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restores the state at exit."""
    state = random_state()
    try:
        yield
    finally:
        restore(state)
