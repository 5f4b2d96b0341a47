"""transformers' Trainer with what this project adds: our stream, our optimisers, our figures."""

import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from vlm_agent.models.adapters import save_trained_weights
from vlm_agent.models.zero3 import saved_weights_whole
from vlm_agent.training.data import RowStream, only_row
from vlm_agent.training.finite_loss import FiniteGradients, FiniteLoss
from vlm_agent.training.hardware import gpu_of_device
from vlm_agent.training.meter import Meter
from vlm_agent.training.optimizers import optimizer_of
from vlm_agent.training.recipe import OptimizerRecipe
from vlm_agent.training.stop_signals import leave_stopping_to_parent
from vlm_agent.training.validation import Validation

NOT_FOR_MODELS = ("kinds", "about", "flops")
"""What a row holds for the figures and for messages."""


class AgentTrainer(Trainer):
    """Trains on a `RowStream`, in its order."""

    def __init__(
        self,
        *args,
        train_dataset: RowStream,
        optimizer_recipe: OptimizerRecipe,
        validation: Validation | None,
        **kwargs,
    ):
        rows = None if validation is None else validation.packs
        super().__init__(*args, train_dataset=train_dataset, eval_dataset=rows, **kwargs)
        self.optimizer_recipe, self.validation = optimizer_recipe, validation
        self.finite_loss = FiniteLoss()
        self.add_callback(FiniteGradients(self.finite_loss))
        self.meter = Meter(self.args.device, _peak_flops(self.args))

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        self.optimizer = optimizer_of(self.model, self.optimizer_recipe, self.args.bf16)
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader:
        """The stream shuffles itself, so the loader reads it in order."""
        loader = DataLoader(
            self.train_dataset,
            batch_size=1,
            collate_fn=only_row,
            num_workers=self.args.dataloader_num_workers,
            persistent_workers=self.args.dataloader_num_workers > 0,
            worker_init_fn=leave_stopping_to_parent,
        )
        return self.accelerator.prepare(loader)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        given = {name: value for name, value in inputs.items() if name not in NOT_FOR_MODELS}
        outputs = model(**given, num_items_in_batch=num_items_in_batch)
        self.finite_loss.watch(outputs.loss, inputs["about"])
        if self.accelerator.sync_gradients:
            self.finite_loss.check(self.state.global_step)
        self.meter.count(inputs, outputs)
        # The loss is this rank's share of the mean over all ranks, whose gradients are averaged, not summed.
        loss = outputs.loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def get_batch_samples(self, epoch_iterator, *args, **kwargs):
        """Counts how long the loader lets the run wait."""
        return super().get_batch_samples(self.meter.timed(epoch_iterator), *args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """What a checkpoint holds beside the state of training. Trainer's own would gather the whole frozen base."""
        if not self.is_deepspeed_enabled:
            super().save_model(output_dir, _internal_call)
            return
        with saved_weights_whole(self.model):
            if self.args.should_save:
                save_trained_weights(self.model, Path(output_dir))

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        figures = self.validation.run(self.model_wrapped, self.args.device)
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self.meter.read()
        super().log(logs, start_time)


def _peak_flops(args: TrainingArguments) -> float | None:
    """Of this rank's GPU; None for a CPU, and for a GPU that `hardware.py` does not know."""
    gpu = gpu_of_device(torch.cuda.get_device_name(args.device)) if args.device.type == "cuda" else None
    return None if gpu is None else gpu.peak(args.bf16)


class ConsoleProgress(TrainerCallback):
    """One line a log: step, loss, speed, time left."""

    def __init__(self, console):
        self.console = console

    def on_train_begin(self, args, state, control, **_):
        self.started, self.first_step = time.monotonic(), state.global_step

    def on_log(self, args, state, control, logs=None, **_):
        if not state.is_world_process_zero:
            return
        if "eval_loss" in logs:
            self._say(f"  validation: loss {logs['eval_loss']:.3f}, {logs['eval_accuracy']:.1%} of actions exact")
        if "loss" not in logs:
            return
        done = state.global_step - self.first_step
        left = (time.monotonic() - self.started) / max(done, 1) * (state.max_steps - state.global_step)
        element = f" elements {logs['element_loss']:.3f}" if "element_loss" in logs else ""
        mfu = f"  MFU {logs['mfu']:.1%}" if "mfu" in logs else ""
        self._say(
            f"step {state.global_step}/{state.max_steps}  loss {logs['loss']:.3f}{element}  "
            f"{logs['tokens_per_second']:,.0f} tokens/s  {logs['actions_per_second']:.1f} actions/s{mfu}  "
            f"waits {logs['data_wait']:.0%}  {logs['memory_gib']:.1f} GiB  {left // 60:.0f}:{left % 60:02.0f} left"
        )

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)
