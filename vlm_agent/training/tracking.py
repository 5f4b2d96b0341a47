"""`training.track`: the figures of RUN/progress.jsonl and the recipe, in Weights & Biases, trackio or MLflow.

transformers' own callbacks log them. `Tracking` is one of those callbacks, limited to what a person who shares the
result expects: the recipe in place of Trainer's arguments, no configuration of the model, which names local folders,
and no weights. Rank 0 alone tracks. The environment variables of a tracker set its server, project and folder.

RUN/tracking.json   {"tracker": "wandb", "run": "…", "name": "…"}: the run that a resumed training continues

A tracker cannot forget steps. Those that a resumed training repeats are logged a second time, with the same losses
except in the first line (`run_folder/progress.py`).
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import (
    get_reporting_integration_callbacks,
    is_mlflow_available,
    is_trackio_available,
    is_wandb_available,
)

from vlm_agent.errors import RecipeError
from vlm_agent.files import read_json, write_json
from vlm_agent.recipe.run import Recipe
from vlm_agent.recipe.training import OFF, TRACKERS
from vlm_agent.training.run_folder.checkpoints import dotted
from vlm_agent.training.run_folder.progress import is_progress

RECORD = "tracking.json"
PROJECT = "vlm-agent"
_NAME = 40
"""Characters of the run folder's name in that of a run; servers limit names."""

_WITHOUT_WEIGHTS = {"WANDB_LOG_MODEL": "false", "WANDB_WATCH": "false", "HF_MLFLOW_LOG_ARTIFACTS": "false"}


def _nothing() -> None:
    """The integration ends its run itself."""


def _finish_wandb() -> None:
    """The integration leaves the run open, and a second training of this process would log into it."""
    import wandb

    wandb.finish()


def _mlflow_run() -> str:
    import mlflow

    return mlflow.active_run().info.run_id


@dataclass(frozen=True)
class _Tracker:
    """How one of transformers' integrations starts, continues and ends a run.

    `defaults`: environment variables that apply where the user has not set them; `{run}` is the run folder.
    `continues`: the variable that names the run. `started`: the identifier that the tracker has chosen for a run that
    has started; None where a run is identified by the name that it starts with. `fixed`: the configuration of a run
    cannot change.
    """

    is_available: Callable[[], bool]
    defaults: Mapping[str, str] = field(default_factory=dict)
    continues: str | None = None
    started: Callable[[], str] | None = None
    fixed: bool = False
    finish: Callable[[], None] = _nothing

    def variables(self, folder: Path, run: str | None) -> dict[str, str | None]:
        """Variables of the environment in which the integration starts `run`, or one that the tracker names where it is
        None."""
        absent = {name: value for name, value in self.defaults.items() if name not in os.environ}
        ours = {name: value.replace("{run}", str(folder)) for name, value in absent.items()}
        return {**ours, **_WITHOUT_WEIGHTS, **({} if self.continues is None else {self.continues: run})}


_TRACKERS = {
    "wandb": _Tracker(
        is_wandb_available,
        defaults={
            "WANDB_PROJECT": PROJECT,
            "WANDB_DIR": "{run}",
            "WANDB_RESUME": "allow",
            # Folders and arguments of the process, the lines of the terminal, and the user's repository.
            "WANDB_X_DISABLE_META": "true",
            "WANDB_X_DISABLE_MACHINE_INFO": "true",
            "WANDB_CONSOLE": "off",
            "WANDB_DISABLE_GIT": "true",
            "WANDB_DISABLE_CODE": "true",
        },
        continues="WANDB_RUN_ID",
        finish=_finish_wandb,
    ),
    "trackio": _Tracker(is_trackio_available),  # continues the run of the same name
    "mlflow": _Tracker(
        is_mlflow_available,
        defaults={
            "MLFLOW_EXPERIMENT_NAME": PROJECT,
            # In place of the path of the script.
            "MLFLOW_TAGS": '{"mlflow.source.name": "vlm-agent train"}',
        },
        continues="MLFLOW_RUN_ID",
        started=_mlflow_run,
        fixed=True,
    ),
}


def check_tracker(recipe: Recipe) -> None:
    """Raises RecipeError where the tracker of the recipe is not installed."""
    name = recipe.training.track
    if name != OFF and not _TRACKERS[name].is_available():
        raise RecipeError(
            f"training.track: {name} is not installed; pip install {TRACKERS[name]}, or set training.track: {OFF}"
        )


def tracking_of(recipe: Recipe) -> "Tracking | None":
    """The callback that tracks this run; None where the recipe has `track: off`.

    Raises RecipeError where the tracker is not installed, before the data is read.
    """
    name = recipe.training.track
    if name == OFF:
        return None
    check_tracker(recipe)
    with _environment(_WITHOUT_WEIGHTS):
        (integration,) = get_reporting_integration_callbacks([name])
        return Tracking(integration(), name, recipe)


class Tracking(TrainerCallback):
    """Logs one training run by `integration`, a callback of transformers. Only rank 0 has one."""

    def __init__(self, integration: TrainerCallback, name: str, recipe: Recipe) -> None:
        self._integration, self._name, self._tracker = integration, name, _TRACKERS[name]
        self._folder = Path(recipe.output)
        self._config = dict(dotted(recipe.model_dump(mode="json")))
        self._arguments: Any = None  # a `_Described`, once training has started

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Starts a run, or continues the one of RUN/tracking.json."""
        path = self._folder / RECORD
        record = read_json(path, "remove it, and a new run is started") if path.is_file() else {}
        tracker, known = self._tracker, record.get("tracker") == self._name
        name = record["name"] if known else f"{_safe(self._folder.absolute().name)}-{secrets.token_hex(4)}"
        self._arguments = _Described(args, name, {} if known and tracker.fixed else self._config)
        new = name if tracker.started is None else None
        with _environment(tracker.variables(self._folder, record["run"] if known else new)):
            self._integration.on_train_begin(self._arguments, state, control, model=None)
        if not known:
            run = new if tracker.started is None else tracker.started()
            write_json(path, {"tracker": self._name, "run": run, "name": name})

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        if is_progress(others["logs"]):
            self._integration.on_log(self._arguments, state, control, logs=others["logs"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._integration.on_train_end(self._arguments, state, control)
        self._tracker.finish()


class _Described:
    """The arguments of a training as an integration reads them: `to_dict` is the configuration that it logs."""

    def __init__(self, args: TrainingArguments, name: str, config: Mapping[str, Any]) -> None:
        self._args, self._config = args, config
        self.run_name, self.project = name, PROJECT

    def to_dict(self) -> dict[str, Any]:
        return dict(self._config)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)


def _safe(name: str) -> str:
    """Without characters that a server refuses in the name of a run."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_NAME]


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables in the block; None removes one. Integrations read them when they start a run."""
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
