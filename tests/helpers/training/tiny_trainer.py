"""The training loop around the tiniest model, with everything that keeps its work, for tests of that."""

import io
import itertools
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import torch
from helpers.training.packs import NextWord, pack
from rich.console import Console
from safetensors.torch import load_file, save_file

from vlm_agent.recipe.run import TrainingRecipe
from vlm_agent.training.engine import Engine, Place, load
from vlm_agent.training.journal import PROGRESS, Journal, read_progress
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.meter import Meter
from vlm_agent.training.loop.optimizers import optimizer_of
from vlm_agent.training.loop.preemption import Preemption
from vlm_agent.training.loop.validation import Validation
from vlm_agent.training.run_folder.checkpoints import Checkpoints, resume_point, step_of
from vlm_agent.training.train import Parts, run_steps

STEPS = 6
IDENTITY = {"seed": 0, "training.optimizer.learning_rate": 0.1}
STREAM = [pack([("tap", [1 + number % 5, 2]), ("type", [3])], first=number % 7) for number in range(4 * STEPS)]
SAMPLE = [pack([("tap", [1, 2]), ("swipe", [4])], first=number) for number in range(3)]
VALIDATION = Validation(SAMPLE, workers=0)
CPU = torch.device("cpu")


class TinyEngine(Engine):
    """The model is not one of transformers."""

    def save_weights(self, folder, state):
        save_file(self.model.state_dict(), folder / "model.safetensors")

    def load_weights(self, folder):
        self.model.load_state_dict(load_file(folder / "model.safetensors"))


@dataclass(frozen=True)
class At:
    """Does something after `step` steps: before the next one (`begin`), before the first of this start (`start`), when
    a checkpoint is written (`save`) or after the validation (`validate`)."""

    step: int
    action: object
    when: str = "begin"


def send(number: signal.Signals):
    return lambda: os.kill(os.getpid(), number)


@dataclass(frozen=True)
class Trained:
    """`lines`: those of progress.jsonl."""

    model: NextWord
    lines: list[dict]


def train(
    folder: Path,
    *hooks: At,
    model: NextWord | None = None,
    stream=STREAM,
    say=lambda words: None,
    workers: int = 0,
    validate: int = 0,
    **options,
) -> tuple[Trained, Preemption]:
    """Trains in `folder`/checkpoints, from its newest whole checkpoint if it has one; validates every `validate` steps.
    `options`: keys of `training` in a recipe."""
    training = TrainingRecipe(
        **{"steps": STEPS, "accumulation": 4 // ranks.count(), "optimizer": {"learning_rate": 0.1}, "save_steps": 2}
        | {"log_steps": 1, "validation": {"steps": validate} if validate else None}
        | options
    )
    place = Place(CPU, bf16=False)
    model = NextWord() if model is None else model
    engine = TinyEngine(model, optimizer_of(model, training.optimizer), place)
    with Preemption() as preemption:
        checkpoints = Checkpoints(folder / "checkpoints", IDENTITY, 4, say, training)
        newest = resume_point(folder / "checkpoints", IDENTITY, say)
        first = 0 if newest is None else step_of(newest)
        rows = load(stream, range(4 * first + ranks.number(), 4 * STEPS, ranks.count()), workers, CPU)
        if newest is not None:
            checkpoints.resume(newest, engine)
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder, first, STEPS, Console(file=io.StringIO()), ())
        meter, done = Meter(CPU, None, None), itertools.count(first)
        _before(meter, "fetch", lambda *_: _act(hooks, "begin", next(done)))
        _before(checkpoints, "save", lambda step, _: _act(hooks, "save", step))
        _before(journal, "log", lambda step, figures: "eval_loss" in figures and _act(hooks, "validate", step))
        _act(hooks, "start", first)
        run_steps(Parts(engine, rows, meter, VALIDATION, checkpoints, journal, preemption), training, first, STEPS)
    return Trained(model, read_progress(folder / PROGRESS)), preemption


def _before(owner, method: str, action) -> None:
    """Calls `action` with the arguments of every call of a method, before it."""
    genuine = getattr(owner, method)
    setattr(owner, method, lambda *arguments: (action(*arguments), genuine(*arguments))[1])


def _act(hooks, when: str, step: int) -> None:
    for hook in hooks:
        if (hook.when, hook.step) == (when, step):
            hook.action()


def weights(trained: Trained) -> torch.Tensor:
    return trained.model.table.weight.detach().clone()
