"""The figures of RUN/progress.jsonl, and the recipe, in TensorBoard and in the tracker of `training.track`.

A tracker is a context manager: it starts or continues a run, yields the function `log(step, figures)`, and ends the
run. An error in between leaves the run open, which its tracker then shows as crashed. Rank 0 alone tracks. A tracker
receives no weights, no configuration of the model, which names local folders, and nothing about the machine. The
environment variables of a tracker set its server, project and folder.

RUN/tracking.json   {"tracker": "wandb", "run": "…", "name": "…"}: the run that a resumed training continues

A tracker cannot forget steps. Those that a resumed training repeats are logged a second time, with the same losses
except in the first line (`run_folder/progress.py`).
"""

import importlib.util
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlm_agent.errors import RecipeError
from vlm_agent.files import read_json, write_json
from vlm_agent.recipe.run import OFF, TRACKERS, Recipe
from vlm_agent.training.loop import ranks
from vlm_agent.training.run_folder.checkpoints import dotted
from vlm_agent.training.run_folder.layout import TENSORBOARD

Log = Callable[[int, Mapping[str, float]], None]
"""Logs the figures of a step."""

RECORD = "tracking.json"
PROJECT = "vlm-agent"
_NAME = 40
"""Characters of the run folder's name in that of a run; servers limit names."""
_STEP = "train/global_step"
_MLFLOW_VALUE, _MLFLOW_BATCH = 6000, 100
"""MLflow's limits: characters of a parameter, and parameters in a request."""


@dataclass(frozen=True)
class Tracked:
    """A run of a tracker. `run`: its identifier, None for a new one. `name`: what people see. `config`: the recipe by
    dotted keys. `folder`: the run folder."""

    folder: Path
    run: str | None
    name: str
    config: Mapping[str, Any]


@contextmanager
def _wandb(tracked: Tracked) -> Iterator[tuple[str, Log]]:
    import wandb

    run = tracked.run or tracked.name
    # Without folders and arguments of the process, the lines of the terminal, and the user's repository.
    private = {f"WANDB_{name}": "true" for name in ("X_DISABLE_META", "X_DISABLE_MACHINE_INFO", "DISABLE_GIT")}
    private |= {"WANDB_DISABLE_CODE": "true", "WANDB_CONSOLE": "off", "WANDB_DIR": str(tracked.folder)}
    with _environment({name: os.environ.get(name, value) for name, value in private.items()}):
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        wandb.init(project=project, id=run, name=tracked.name, resume="allow")
    wandb.config.update(dict(tracked.config), allow_val_change=True)
    wandb.define_metric(_STEP)
    wandb.define_metric("*", step_metric=_STEP, step_sync=True)
    yield run, lambda step, figures: wandb.log({**tags(figures), _STEP: step})
    wandb.finish()


@contextmanager
def _trackio(tracked: Tracked) -> Iterator[tuple[str, Log]]:
    import trackio

    run = tracked.run or tracked.name  # a run is identified by its name
    trackio.init(project=PROJECT, name=run, resume="allow")
    trackio.config.update(dict(tracked.config), allow_val_change=True)
    yield run, lambda step, figures: trackio.log({**tags(figures), _STEP: step})
    trackio.finish()


@contextmanager
def _mlflow(tracked: Tracked) -> Iterator[tuple[str, Log]]:
    import mlflow

    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    with _environment({"MLFLOW_RUN_ID": None}):
        run = mlflow.start_run(run_id=tracked.run, run_name=tracked.name).info.run_id
    if tracked.run is None:  # the parameters of a run cannot change
        parameters = [(key, str(value)[:_MLFLOW_VALUE]) for key, value in tracked.config.items()]
        for start in range(0, len(parameters), _MLFLOW_BATCH):
            mlflow.log_params(dict(parameters[start : start + _MLFLOW_BATCH]), synchronous=False)
        mlflow.set_tags({"mlflow.source.name": "vlm-agent train"})  # in place of the path of the script
    yield run, lambda step, figures: mlflow.log_metrics(dict(figures), step=step, synchronous=False)
    mlflow.end_run()


_TRACKERS: dict[str, Callable[[Tracked], AbstractContextManager[tuple[str, Log]]]] = {
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Log]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(folder / TENSORBOARD))

    def log(step: int, figures: Mapping[str, float]) -> None:
        for name, value in tags(figures).items():
            writer.add_scalar(name, value, step)
        writer.flush()

    yield log
    writer.close()


def tags(figures: Mapping[str, float]) -> dict[str, float]:
    """The names of figures in trackers: `train/loss` for `loss`, `eval/loss` for `eval_loss`."""
    names = {name: name.removeprefix("eval_") for name in figures}
    return {f"{'train' if name == short else 'eval'}/{short}": figures[name] for name, short in names.items()}


def check_tracker(recipe: Recipe) -> None:
    """Raises RecipeError where the tracker of the recipe is not installed."""
    name = recipe.training.track
    if name != OFF and importlib.util.find_spec(name) is None:
        raise RecipeError(
            f"training.track: {name} is not installed; pip install {TRACKERS[name]}, or set training.track: {OFF}"
        )


@contextmanager
def trackers(recipe: Recipe) -> Iterator[list[Log]]:
    """The `log` functions of TensorBoard and of the recipe's tracker, whose run starts or continues; of rank 0."""
    if ranks.number() != 0:
        yield []
        return
    folder, name = Path(recipe.output), recipe.training.track
    with ExitStack() as stack:
        logs = [stack.enter_context(_tensorboard(folder))]
        if name != OFF:
            logs.append(stack.enter_context(_recorded(folder, name, recipe)))
        yield logs


@contextmanager
def _recorded(folder: Path, tracker: str, recipe: Recipe) -> Iterator[Log]:
    """The run of RUN/tracking.json, or a new one, which is recorded there."""
    path = folder / RECORD
    record = read_json(path, "remove it, and a new run is started") if path.is_file() else {}
    known = record.get("tracker") == tracker
    name = record["name"] if known else f"{_safe(folder.absolute().name)}-{secrets.token_hex(4)}"
    config = dict(dotted(recipe.model_dump(mode="json")))
    with _TRACKERS[tracker](Tracked(folder, record["run"] if known else None, name, config)) as (run, log):
        if not known:
            write_json(path, {"tracker": tracker, "run": run, "name": name})
        yield log


def _safe(name: str) -> str:
    """Without characters that a server refuses in the name of a run."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_NAME]


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables in the block; None removes one. Trackers read them when they start a run."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
