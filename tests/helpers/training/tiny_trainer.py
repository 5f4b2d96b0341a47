"""A Trainer of the tiniest model with everything that keeps its work, for tests of that."""

import os
import signal
from pathlib import Path

import torch
from helpers.training.packs import NextWord, pack
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from vlm_agent.training.loop.preemption import Preemption, leave_stopping_to_parent
from vlm_agent.training.loop.validation import Validation
from vlm_agent.training.run_folder.checkpoints import Checkpoints, resume_point

STEPS = 6
IDENTITY = {"seed": 0, "training.optimizer.learning_rate": 0.1}
STREAM = [pack([("tap", [1 + number % 5, 2]), ("type", [3])], first=number % 7) for number in range(4 * STEPS)]
SAMPLE = [pack([("tap", [1, 2]), ("swipe", [4])], first=number) for number in range(3)]


class TinyTrainer(Trainer):
    validation = Validation(SAMPLE, workers=0)

    def get_train_dataloader(self) -> DataLoader:
        loader = DataLoader(
            self.train_dataset,
            batch_size=1,
            collate_fn=_only,
            num_workers=self.args.dataloader_num_workers,
            worker_init_fn=leave_stopping_to_parent,
        )
        return self.accelerator.prepare(loader)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(inputs["input_ids"], inputs["labels"], num_items_in_batch).loss * self.accelerator.num_processes

    def evaluate(self, *_, **__):
        figures = self.validation.run(self.model_wrapped, self.args.device)
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures


def _only(rows: list) -> dict:
    return rows[0]


class At(TrainerCallback):
    """Does something at the beginning of a step (0: before the first), or when Trainer has saved."""

    def __init__(self, step: int, action, when: str = "on_step_begin"):
        self.step = step
        setattr(self, when, lambda args, state, control, **_: action() if state.global_step == step else None)


def send(number: signal.Signals):
    return lambda: os.kill(os.getpid(), number)


def train(folder: Path, *callbacks, stream=STREAM, say=lambda words: None, **options) -> tuple[TinyTrainer, Preemption]:
    """Trains in `folder`/checkpoints, from its newest whole checkpoint if it has one."""
    arguments = {
        "output_dir": str(folder / "checkpoints"),
        "num_train_epochs": 1,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4 // int(os.environ.get("WORLD_SIZE", "1")),
        "learning_rate": 0.1,
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": [],
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    arguments = TrainingArguments(**arguments | options)
    with Preemption() as preemption:
        checkpoints = Checkpoints(folder / "checkpoints", IDENTITY, 4, say)
        trainer = TinyTrainer(
            NextWord(),
            arguments,
            train_dataset=stream,
            eval_dataset=SAMPLE,
            callbacks=[*callbacks, preemption, checkpoints],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=resume_point(folder / "checkpoints", IDENTITY, say))
    return trainer, preemption


def weights(trainer: TinyTrainer) -> torch.Tensor:
    return trainer.model.table.weight.detach().clone()
