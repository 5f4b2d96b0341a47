"""transformers' Trainer with what this project adds: our stream, our optimisers, our figures."""

import time

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from vlm_agent.training.optimizers import adamw, muon
from vlm_agent.training.recipe import OptimizerRecipe


class TrainingError(ValueError):
    """A run that cannot go on, with what to change."""


class AgentTrainer(Trainer):
    """Trains on a `SentenceStream`, in its order."""

    def __init__(self, *args, optimizer_recipe: OptimizerRecipe, end_of_action: int, **kwargs):
        super().__init__(*args, **kwargs)
        self.optimizer_recipe = optimizer_recipe
        self.meter = Meter(end_of_action)

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        recipe = self.optimizer_recipe
        if recipe.name == "muon":
            self.optimizer = muon(self.model, recipe.learning_rate, recipe.muon_learning_rate, recipe.weight_decay)
        else:
            self.optimizer = adamw(self.model, recipe.learning_rate, recipe.weight_decay)
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader:
        """The stream shuffles itself, so the loader reads it in order."""
        loader = DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            persistent_workers=self.args.dataloader_num_workers > 0,
        )
        return self.accelerator.prepare(loader)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        if not torch.isfinite(outputs.loss):
            raise TrainingError(
                f"the loss is {outputs.loss.item()} at step {self.state.global_step}; nothing was updated by it. "
                "Lower the learning rate, or look at the data"
            )
        self.meter.count(inputs, outputs)
        # The loss is this rank's share of the mean over all ranks, whose gradients are averaged, not summed.
        loss = outputs.loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self.meter.read()
        super().log(logs, start_time)


class Meter:
    """Counts between two log lines: this rank's tokens (padding too) and supervised actions a second, and the parts of
    the loss."""

    def __init__(self, end_of_action: int):
        self.end_of_action = end_of_action
        self._reset()

    def _reset(self) -> None:
        self.started = time.monotonic()
        self.tokens = self.actions = self.batches = 0
        self.losses = {"action_loss": 0.0, "element_loss": 0.0}

    def count(self, inputs: dict[str, torch.Tensor], outputs) -> None:
        labels = inputs["labels"]
        self.tokens += labels.numel()
        self.actions += int((labels == self.end_of_action).sum())
        self.batches += 1
        for name in self.losses:
            value = getattr(outputs, name)
            if value is not None:
                self.losses[name] += value.item()

    def read(self) -> dict[str, float]:
        """Figures since the last reading; starts anew."""
        seconds = time.monotonic() - self.started
        figures = {"tokens_per_second": self.tokens / seconds, "actions_per_second": self.actions / seconds}
        figures |= {name: total / max(self.batches, 1) for name, total in self.losses.items() if total}
        self._reset()
        return figures


class ConsoleProgress(TrainerCallback):
    """One line a log: step, loss, speed, time left."""

    def __init__(self, console):
        self.console = console

    def on_train_begin(self, args, state, control, **_):
        self.started, self.first_step = time.monotonic(), state.global_step

    def on_log(self, args, state, control, logs=None, **_):
        if not state.is_world_process_zero or "loss" not in logs:
            return
        done = state.global_step - self.first_step
        left = (time.monotonic() - self.started) / max(done, 1) * (state.max_steps - state.global_step)
        element = f" elements {logs['element_loss']:.3f}" if "element_loss" in logs else ""
        self.console.print(
            f"step {state.global_step}/{state.max_steps}  loss {logs['loss']:.3f}{element}  "
            f"{logs['tokens_per_second']:,.0f} tokens/s  {logs['actions_per_second']:.1f} actions/s  "
            f"{left // 60:.0f}:{left % 60:02.0f} left",
            highlight=False,
            soft_wrap=True,
        )
