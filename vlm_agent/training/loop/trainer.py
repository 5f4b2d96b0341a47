"""transformers' Trainer with this package's stream, optimisers, loss normalisation and metrics."""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from peft import PeftModel
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vlm_agent.files.console import clock_time
from vlm_agent.models.cost import TrainingFlops
from vlm_agent.models.loss import NOT_FOR_MODELS, Targets
from vlm_agent.models.weights.adapters import save_trained_weights
from vlm_agent.models.weights.zero3 import state_for_saving
from vlm_agent.recipe.training import OptimizerRecipe
from vlm_agent.training.data.stream import RowStream, only_row
from vlm_agent.training.dry_run.hardware import gpu_of_device
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.finite_loss import BeforeUpdate, FiniteLoss
from vlm_agent.training.loop.meter import Meter
from vlm_agent.training.loop.optimizers import optimizer_of
from vlm_agent.training.loop.preemption import leave_stopping_to_parent
from vlm_agent.training.loop.validation import Validation
from vlm_agent.training.run_folder.progress import append_progress, is_progress, keep_steps, total_seconds


class AgentTrainer(Trainer):
    """Trains on a `RowStream` in its order. `flops`: those of training the model, None if its cost is unknown."""

    def __init__(
        self,
        *,
        train_dataset: RowStream,
        optimizer_recipe: OptimizerRecipe,
        validation: Validation | None,
        flops: TrainingFlops | None,
        **kwargs: Any,
    ) -> None:
        rows = None if validation is None else validation.packs
        super().__init__(train_dataset=train_dataset, eval_dataset=cast("Dataset | None", rows), **kwargs)
        self._stream = train_dataset
        self.optimizer_recipe, self.validation = optimizer_recipe, validation
        self.finite_loss = FiniteLoss()
        self.add_callback(BeforeUpdate(self.finite_loss))
        self.meter = Meter(self.args.device, flops, _peak_flops(self.args))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        self.optimizer = optimizer_of(self._module, self.optimizer_recipe, self.args.bf16)
        return self.optimizer

    @property
    def _module(self) -> nn.Module:
        assert self.model is not None  # noqa: S101 (only a Trainer with model_init may have none)
        return self.model

    def get_train_dataloader(self) -> DataLoader:
        """Reads in order, because the stream is shuffled already."""
        loader = DataLoader(
            self._stream,
            batch_size=1,
            collate_fn=only_row,
            num_workers=self.args.dataloader_num_workers,
            persistent_workers=self.args.dataloader_num_workers > 0,
            worker_init_fn=leave_stopping_to_parent,
            pin_memory=self.args.device.type == "cuda",
        )
        return self.accelerator.prepare(loader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        model_inputs = {name: value for name, value in inputs.items() if name not in NOT_FOR_MODELS}
        outputs = model(**model_inputs, num_items_in_batch=num_items_in_batch)
        self.finite_loss.watch(outputs.loss, inputs["about"])
        if self.is_deepspeed_enabled and self.accelerator.sync_gradients:
            self.finite_loss.check(self.state.global_step)
        self.meter.count(inputs, outputs)
        # The loss is this rank's part of the mean over all ranks; gradients are averaged over ranks, not summed.
        loss = outputs.loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def _prepare_input(self, data: Any) -> Any:
        """Trainer's method without a cast: under DeepSpeed it would round the weights of losses to bfloat16."""
        return send_to_device(data, self.args.device, non_blocking=True)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list[dict], torch.Tensor]:
        """The batches of an optimiser step, and the sum of their loss weights over all ranks, float32 ()."""
        batches = list(itertools.islice(self.meter.timed(epoch_iterator), num_batches))
        weight = sum((Targets.of(batch).total_weight for batch in batches), torch.zeros((), dtype=torch.float64))
        return batches, ranks.summed(weight.to(device)).float()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the trained weights of a checkpoint; Trainer's method would gather the whole frozen base."""
        if not self.is_deepspeed_enabled:
            super().save_model(output_dir, _internal_call)
            return
        state = state_for_saving(self._module, self.args.should_save)
        if self.args.should_save and output_dir is not None:
            save_trained_weights(cast("PreTrainedModel | PeftModel", self.model), Path(output_dir), state)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        assert self.validation is not None  # noqa: S101 (evaluation is scheduled only with one)
        figures = self.validation.run(self.model_wrapped, self.args.device)
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self.meter.read()
        # Trainer would add its epoch, which is the share of the steps: it does not know the length of a pass.
        epoch, self.state.epoch = self.state.epoch, cast(float, None)
        try:
            super().log(logs, start_time)
        finally:
            self.state.epoch = epoch


def _peak_flops(args: TrainingArguments) -> float | None:
    """The FLOPS of this rank's GPU; None for a CPU and for a GPU that is not in `hardware.GPUS`."""
    gpu = gpu_of_device(torch.cuda.get_device_name(args.device)) if args.device.type == "cuda" else None
    return None if gpu is None else gpu.peak(args.bf16)


class _SinceStart(TrainerCallback):
    """Measures the time since the last start of training, which excludes steps before a resume."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def eta(self, state: TrainerState) -> float:
        """Seconds to the last step, at the speed since the start."""
        done = state.global_step - self.first_step
        return self.seconds() / max(done, 1) * (state.max_steps - state.global_step)


class ConsoleProgress(_SinceStart):
    """Prints one line per log step and one per validation."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        logs: dict[str, float] = others["logs"]
        if not state.is_world_process_zero:
            return
        if "eval_loss" in logs:
            self._print(f"  validation: loss {logs['eval_loss']:.3f}, {logs['eval_accuracy']:.1%} of actions exact")
        if "loss" not in logs:
            return
        element = f" elements {logs['element_loss']:.3f}" if "element_loss" in logs else ""
        mfu = f"  MFU {logs['mfu']:.1%}" if "mfu" in logs else ""
        self._print(
            f"step {state.global_step}/{state.max_steps}  loss {logs['loss']:.3f}{element}  "
            f"{logs['tokens_per_second']:,.0f} tokens/s  {logs['actions_per_second']:.1f} actions/s{mfu}  "
            f"loader wait {logs['data_wait']:.0%}  {logs['memory_gib']:.1f} GiB  ETA {clock_time(self.eta(state))}"
        )

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


class ProgressFile(_SinceStart):
    """Writes the figures of every log step and validation to `RUN/progress.jsonl`, which `vlm-agent status` reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        super().on_train_begin(args, state, control)
        if state.is_world_process_zero:
            self._before = total_seconds(self.path)
            keep_steps(self.path, state.global_step)

    def total_seconds(self) -> float:
        """Seconds of training over all starts, as far as lines of killed ones record them."""
        return self._before + self.seconds()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A stopped run has trained since its last log step."""
        if state.is_world_process_zero and state.global_step < state.max_steps:
            append_progress(self.path, self._line(state))

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        logs: dict[str, float] = others["logs"]
        if not state.is_world_process_zero or not is_progress(logs):
            return
        append_progress(self.path, self._line(state) | logs)

    def _line(self, state: TrainerState) -> dict[str, Any]:
        return {
            "step": state.global_step,
            "steps": state.max_steps,
            "time": datetime.now(UTC).isoformat(),
            "seconds": round(self.seconds(), 3),
            "total_seconds": round(self.total_seconds(), 3),
            "eta_seconds": round(self.eta(state), 3),
        }
