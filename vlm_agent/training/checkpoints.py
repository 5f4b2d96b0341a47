"""Checkpoints that are whole, or else never used: which to resume from, which to keep, which is the best.

A checkpoint counts from the moment its record is written (`checkpoint_record`). The run folder keeps the newest that
are whole, two or as many as the recipe says, and the best of all; an older one goes only when a newer one is safe on
disk. Trainer's own limit (`save_total_limit`) must stay off: it counts folders, by their times, whole or not, and has
no second look.

All ranks must see one folder. Trainer's files are read with `weights_only` (no code in a pickle is run), but DeepSpeed
reads its own as pickles: resume only runs of your own.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from transformers import TrainerCallback

from vlm_agent.training import ranks
from vlm_agent.training.checkpoint_record import RECORD, DamagedError, check, read_record, seal
from vlm_agent.training.errors import TrainingError
from vlm_agent.training.recipe import NEWEST_KEPT, Recipe

_NAME = re.compile(r"checkpoint-(\d+)")
_SET_ASIDE = re.compile(r"checkpoint-(\d+)\.damaged(-\d+)?")
_NONE, _REFUSED = -1, -2
_FREE_TO_CHANGE = (
    *("output", "data.shards", "data.workers"),
    *("training.log_steps", "training.save_steps", "training.keep_checkpoints"),
)


def identity_of(recipe: Recipe, data_digest: str, rank_count: int) -> dict[str, str | int | float | bool | list | None]:
    """What decides a run's weights and which of its checkpoints is best: the recipe but for what leaves them alone, the
    data, the packs in a step.

    Half the ranks may go on with twice the accumulation, but not under DeepSpeed, which cuts its checkpoints by ranks.
    """
    identity = decisive_keys(recipe)
    identity["sha256 of the data"] = data_digest
    identity["packs in a step (accumulation x ranks)"] = recipe.training.accumulation * rank_count
    if identity.get("training.deepspeed") is not None:
        identity["ranks, as DeepSpeed's checkpoints are cut by them"] = rank_count
        identity["sha256 of training.deepspeed"] = hashlib.sha256(
            Path(recipe.training.deepspeed).read_bytes()
        ).hexdigest()
    return identity


def decisive_keys(recipe: Recipe) -> dict[str, str | int | float | bool | list | None]:
    """The recipe, by dotted keys, without what a run that goes on may have changed. How the packs of a step are shared
    out is not in it; whether they are as many is for `identity_of` to say."""
    keys = dict(_flat(recipe.model_dump(mode="json")))
    for key in (*_FREE_TO_CHANGE, "training.accumulation"):
        if key in keys or not key.startswith("data."):  # drawn data has no shards
            keys.pop(key)
    return keys


def _flat(section: Mapping, prefix: str = ""):
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def resume_point(folder: Path, identity: Mapping, say: Callable[[str], None]) -> Path | None:
    """The checkpoint to go on from, None to begin; every rank calls it, rank 0 looks.

    Raises TrainingError where the newest whole one was made by another run than `identity` says.
    """
    found, refusal = None, None
    if ranks.number() == 0:
        found = newest_whole(folder, say)
        refusal = None if found is None else _unlike(found, identity)
    step = _NONE if found is None else _REFUSED if refusal else _step(found)
    step = ranks.of_first(step)
    if step == _REFUSED:
        raise TrainingError(refusal or "rank 0 refuses to resume; it says why")
    return None if step == _NONE else folder / f"checkpoint-{step}"


def _unlike(checkpoint: Path, identity: Mapping) -> str | None:
    """Why a run of this identity cannot go on from there."""
    there = read_record(checkpoint)["identity"]
    differences = [
        f"  {key}: {there.get(key)} in the checkpoint, {identity.get(key)} now"
        for key in sorted({*there, *identity})
        if there.get(key) != identity.get(key)
    ]
    if not differences:
        return None
    return "\n".join(
        [f"{checkpoint} is of a run that differs; take its values back, or choose another output:", *differences]
    )


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint of which every byte is there.

    Newer ones that are damaged or half written are named, with what is wrong, and set aside as `checkpoint-N.damaged`:
    nothing would overwrite them by chance, and nothing loads them.
    """
    for checkpoint in reversed(_checkpoints(folder)):
        try:
            check(checkpoint)
        except DamagedError as damage:
            aside = _set_aside(checkpoint)
            say(f"{checkpoint} is not whole and is not used: {damage}. It is kept as {aside.name}")
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
    """The checkpoint with the highest exact action accuracy in validation, with the lowest loss among equals."""
    scored = [(_score(validation), path) for path, validation in _validated(folder)]
    return max(scored)[1] if scored else None


def is_better(folder: Path, validation: Mapping) -> bool:
    """Whether these figures beat those of every checkpoint."""
    return all(_score(validation) > _score(other) for _, other in _validated(folder))


def _score(validation: Mapping) -> tuple[float, float]:
    return validation["eval_accuracy"], -validation["eval_loss"]


def _validated(folder: Path) -> list[tuple[Path, dict]]:
    figures = [(path, record["validation"]) for path, record in _recorded(folder)]
    return [(path, validation) for path, validation in figures if validation is not None]


def rotate(folder: Path, say: Callable[[str], None], newest: int = NEWEST_KEPT) -> None:
    """Removes what is older than the `newest` whole checkpoints and is not the best one."""
    whole = [path for path, _ in _recorded(folder)]
    if len(whole) < newest:
        return
    kept = {*whole[-newest:], best(folder)}
    for checkpoint in _checkpoints(folder):
        if checkpoint not in kept and _step(checkpoint) < _step(whole[-newest]):
            _remove(checkpoint)
    for aside in folder.glob("checkpoint-*.damaged*"):
        match = _SET_ASIDE.fullmatch(aside.name)
        if match and int(match[1]) < _step(whole[-newest]):
            say(f"{aside} is removed: {newest} newer whole checkpoints are there")
            _remove(aside)


def _remove(checkpoint: Path) -> None:
    """The record first, so that a kill in between leaves nothing that looks whole."""
    (checkpoint / RECORD).unlink(missing_ok=True)
    shutil.rmtree(checkpoint)


def _recorded(folder: Path) -> list[tuple[Path, dict]]:
    """The checkpoints that have a record, oldest first; their files are not read."""
    found = []
    for checkpoint in _checkpoints(folder):
        try:
            found.append((checkpoint, read_record(checkpoint)))
        except DamagedError:
            continue  # not whole: it counts for nothing here, and `newest_whole` tells of it
    return found


def _checkpoints(folder: Path) -> list[Path]:
    """Folders named `checkpoint-N`, oldest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)), key=_step)


def _step(checkpoint: Path) -> int:
    return int(_NAME.fullmatch(checkpoint.name)[1])


class Checkpoints(TrainerCallback):
    """Seals what Trainer has just written, and has it write when a validation is the best so far."""

    def __init__(
        self,
        folder: Path,
        identity: Mapping,
        packs_per_step: int,
        say: Callable[[str], None],
        newest: int = NEWEST_KEPT,
    ):
        self.folder, self.identity, self.packs_per_step, self.say = folder, identity, packs_per_step, say
        self.newest = newest
        self._validated: tuple[int, dict] | None = None

    def on_evaluate(self, args, state, control, metrics, **_):
        self._validated = (state.global_step, dict(metrics))
        if ranks.agreed(ranks.number() == 0 and is_better(self.folder, metrics)):
            control.should_save = True

    def on_save(self, args, state, control, **_):
        """Rank 0 does it when all ranks have written theirs, and none goes on before it is done."""
        ranks.wait()
        if ranks.number() == 0:
            step = state.global_step
            validation = self._validated[1] if self._validated and self._validated[0] == step else None
            checkpoint = self.folder / f"checkpoint-{step}"
            seal(checkpoint, step, step * self.packs_per_step, self.identity, validation)
            rotate(self.folder, self.say, self.newest)
        ranks.wait()
