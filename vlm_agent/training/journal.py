"""Where a run writes its figures: the console, RUN/progress.jsonl, TensorBoard and the tracker of `training.track`.

RUN/progress.jsonl holds one JSON object per log step and per validation, appended by rank 0 while a run trains:

    {"step": 40, "steps": 100, "time": "2026-01-31T12:00:00+00:00", "seconds": 61.5,
     "total_seconds": 161.5, "eta_seconds": 92.2,
     "loss": 0.41, "action_loss": 0.39, "loss_tap": …, "tokens_per_second": …, "actions_per_second": …,
     "data_wait": 0.02, "memory_gib": 3.1, "learning_rate": …, "grad_norm": …, …}
    {"step": 40, …, "eval_loss": 0.52, "eval_accuracy": 0.61, "eval_accuracy_tap": …, …}

`seconds` counts from the last start, `total_seconds` over all starts, steps that were lost and repeated included;
`eta_seconds` is computed at the speed since the last start. A stopped run ends with a line of times alone; so do the
lines before a resume, if steps were lost.
`loop/meter.py` and `loop/validation.py` define the other figures. A resumed run drops the lines after its checkpoint
and appends the steps that it repeats, so that no step occurs twice. Its first line is a mean over the steps since the
checkpoint: if the checkpoint lies between two log steps, losses and speed of that line differ from those of an
uninterrupted run.

A tracker is a context manager: it starts or continues a run, yields the function `log(step, figures)`, and ends the
run. An error in between leaves the run open, which its tracker then shows as crashed. Rank 0 alone tracks. A tracker
receives no weights, no configuration of the model, which names local folders, and nothing about the machine. The
environment variables of a tracker set its server, project and folder.

RUN/tracking.json   {"tracker": "wandb", "run": "…", "name": "…"}: the run that a resumed training continues

A tracker cannot forget steps. Those that a resumed training repeats are logged a second time, with the same losses
except in the first line.
"""

import importlib.util
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.errors import RecipeError
from vlm_agent.files import atomic_write, read_json, write_json
from vlm_agent.files.console import clock_time
from vlm_agent.recipe.run import OFF, Recipe

PROGRESS, TENSORBOARD = "progress.jsonl", "tensorboard"

Log = Callable[[int, Mapping[str, float]], None]
"""Logs the figures of a step."""

RECORD = "tracking.json"
PROJECT = "vlm-agent"
_NAME = 40
"""Characters of the run folder's name in that of a run; servers limit names."""
_STEP = "train/global_step"
_MLFLOW_VALUE, _MLFLOW_BATCH = 6000, 100
"""MLflow's limits: characters of a parameter, and parameters in a request."""


class Journal:
    """Measures time since the last start of training, which excludes steps before a resume. `first`: steps done then;
    the lines of RUN/progress.jsonl after it are dropped."""

    def __init__(self, run: Path, first: int, steps: int, console: Console, trackers: Sequence[Log]) -> None:
        from vlm_agent.training.loop import ranks  # not above: `status` reads the log without PyTorch

        self.path, self.first, self.steps, self.console, self.trackers = run / PROGRESS, first, steps, console, trackers
        self._writes = ranks.number() == 0
        self._before = total_seconds(self.path)
        if self._writes:
            keep_steps(self.path, first)
            if self._before > total_seconds(self.path):  # of lost steps, if this start is killed before a log line
                append_progress(self.path, {"step": first, "total_seconds": self._before})
        self._started = time.monotonic()

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Writes the figures of a log step, or of a validation after it; those of a validation once, although a start
        that is killed before its checkpoint has them repeats it."""
        logged = read_progress(self.path) if self._writes and "eval_loss" in figures else []
        if self._writes and not any(line["step"] == step and "eval_loss" in line for line in logged):
            for log in (self._to_console, self._to_progress, *self.trackers):
                log(step, figures)

    def close(self, step: int) -> None:
        """Records the time of a run that stopped after `step`, since its last log step."""
        if self._writes and step < self.steps:
            self._to_progress(step, {})

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def total_seconds(self) -> float:
        """Seconds of training over all starts, as far as lines of killed ones record them."""
        return self._before + self.seconds()

    def eta(self, step: int) -> float:
        """Seconds to the last step, at the speed since the start."""
        return self.seconds() / max(step - self.first, 1) * (self.steps - step)

    def _to_console(self, step: int, figures: Mapping[str, float]) -> None:
        if "eval_loss" in figures:
            line = f"  validation: loss {figures['eval_loss']:.3f}, {figures['eval_accuracy']:.1%} of actions exact"
        else:
            element = f" elements {figures['element_loss']:.3f}" if "element_loss" in figures else ""
            mfu = f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else ""
            success = f"success {figures['success']:.1%}  " if "success" in figures else ""
            line = (
                f"step {step}/{self.steps}  loss {figures['loss']:.3f}{element}  {success}"
                f"{figures['tokens_per_second']:,.0f} tokens/s  {figures['actions_per_second']:.1f} actions/s{mfu}  "
                f"loader wait {figures['data_wait']:.0%}  {figures['memory_gib']:.1f} GiB  "
                f"ETA {clock_time(self.eta(step))}"
            )
        self.console.print(line, highlight=False, soft_wrap=True)

    def _to_progress(self, step: int, figures: Mapping[str, float]) -> None:
        times: dict[str, Any] = {
            "step": step,
            "steps": self.steps,
            "time": datetime.now(UTC).isoformat(),
            "seconds": round(self.seconds(), 3),
            "total_seconds": round(self.total_seconds(), 3),
            "eta_seconds": round(self.eta(step), 3),
        }
        append_progress(self.path, {**times, **figures})


# RUN/progress.jsonl.


def append_progress(path: Path, line: dict[str, Any]) -> None:
    """Appends one line by a single write, so that a reader sees at most the last line incomplete."""
    with path.open("ab", buffering=0) as file:
        file.write(_encoded(line))


def read_progress(path: Path) -> list[dict[str, Any]]:
    """The lines, oldest first; none without a file. A line that a killed process left incomplete is skipped."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_bytes().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def total_seconds(path: Path) -> float:
    """Seconds of training until the last line; 0 without one."""
    return max((line.get("total_seconds", 0.0) for line in read_progress(path)), default=0.0)


def keep_steps(path: Path, last: int) -> None:
    """Removes the lines after step `last`, those of times alone, and what a killed process left incomplete."""
    if path.exists():
        lines = [line for line in read_progress(path) if line["step"] <= last]
        kept = [_encoded(line) for line in lines if "loss" in line or "eval_loss" in line]
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"".join(kept))


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


# Trackers.


@contextmanager
def _wandb(folder: Path, run: str | None, name: str, config: dict[str, Any]) -> Iterator[tuple[str, Log]]:
    import wandb
    from accelerate.utils import patch_environment

    run = run or name
    # Without folders and arguments of the process, the lines of the terminal, and the user's repository.
    private = {f"WANDB_{name}": "true" for name in ("X_DISABLE_META", "X_DISABLE_MACHINE_INFO", "DISABLE_GIT")}
    private |= {"WANDB_DISABLE_CODE": "true", "WANDB_CONSOLE": "off", "WANDB_DIR": str(folder)}
    with patch_environment(**private | {name: os.environ[name] for name in private if name in os.environ}):
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        wandb.init(project=project, id=run, name=name, resume="allow")
    wandb.config.update(config, allow_val_change=True)
    wandb.define_metric(_STEP)
    wandb.define_metric("*", step_metric=_STEP, step_sync=True)
    yield run, lambda step, figures: wandb.log({**tags(figures), _STEP: step})
    wandb.finish()


@contextmanager
def _trackio(folder: Path, run: str | None, name: str, config: dict[str, Any]) -> Iterator[tuple[str, Log]]:
    import trackio

    run = run or name  # a run is identified by its name
    trackio.init(project=PROJECT, name=run, resume="allow")
    trackio.config.update(config, allow_val_change=True)
    yield run, lambda step, figures: trackio.log({**tags(figures), _STEP: step})
    trackio.finish()


@contextmanager
def _mlflow(folder: Path, run: str | None, name: str, config: dict[str, Any]) -> Iterator[tuple[str, Log]]:
    import mlflow

    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    os.environ.pop("MLFLOW_RUN_ID", None)  # the run of another program
    started = mlflow.start_run(run_id=run, run_name=name).info.run_id
    if run is None:  # the parameters of a run cannot change
        parameters = [(key, str(value)[:_MLFLOW_VALUE]) for key, value in config.items()]
        for start in range(0, len(parameters), _MLFLOW_BATCH):
            mlflow.log_params(dict(parameters[start : start + _MLFLOW_BATCH]), synchronous=False)
        mlflow.set_tags({"mlflow.source.name": "vlm-agent train"})  # in place of the path of the script
    yield started, lambda step, figures: mlflow.log_metrics(dict(figures), step=step, synchronous=False)
    mlflow.end_run()


_TRACKERS: dict[str, Callable[[Path, str | None, str, dict[str, Any]], AbstractContextManager[tuple[str, Log]]]] = {
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
"""Name → a function of the run folder, the identifier of the tracker's run (None for a new one), its name, which people
see, and the recipe by dotted keys."""


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
        raise RecipeError(f"training.track: {name} is not installed; pip install {name}, or set training.track: {OFF}")


@contextmanager
def trackers(recipe: Recipe) -> Iterator[list[Log]]:
    """The `log` functions of TensorBoard and of the recipe's tracker, whose run starts or continues; of rank 0."""
    from vlm_agent.training.loop import ranks

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
    from vlm_agent.training.run_folder.checkpoints import dotted

    path = folder / RECORD
    record = read_json(path, "remove it, and a new run is started") if path.is_file() else {}
    known = record.get("tracker") == tracker
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", folder.absolute().name)[:_NAME]  # servers refuse other characters
    name = record["name"] if known else f"{safe}-{secrets.token_hex(4)}"
    config = dict(dotted(recipe.model_dump(mode="json")))
    with _TRACKERS[tracker](folder, record["run"] if known else None, name, config) as (run, log):
        if not known:
            write_json(path, {"tracker": tracker, "run": run, "name": name})
        yield log
