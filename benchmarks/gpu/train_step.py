"""LoRA training steps on packed rows of 8-step episodes: tokens per second, MFU, and peak memory beside its estimate.

Rows are made before the clock starts, as loader processes do in a run; their way to the GPU is timed. Model FLOPs are
those of vlm_agent.training.flops, without what gradient checkpointing computes again.
`--undo` measures without one of the package's faster operations: `patches` and `windows` of vision_kernels.py,
`lora` of lora_layers.py, `norms`, `swiglu` and `rotary` of fused.py, `varlen` for one attention call per sentence and
window, `tower_width` for MLPs of a tower at their own width, `screens` for the variable-length kernel on long screens,
too, and `fa4` for FlashAttention-2 where FlashAttention-4 is installed.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_map_only

from benchmarks.gpu.timing import wait_for
from benchmarks.gpu.without_values import replaced
from benchmarks.training import packed, padded
from benchmarks.training.episodes import STEPS, read_episodes, write_episodes
from benchmarks.training.measure import Clock, peak_resident
from benchmarks.training.models import LORA_RANK
from benchmarks.training.road import Run
from benchmarks.training.shapes import Shape, shape_named
from benchmarks.training.words import read_tokenizer, write_tokenizer
from vlm_agent.models import attention
from vlm_agent.models.cost import NO_WORK, Precision, TrainingFlops, Workload, causal_pairs
from vlm_agent.models.family import family_of
from vlm_agent.models.fused import ROTARY, OnGpu, gated_mlp, normalise
from vlm_agent.models.qwen_vl import vision_kernels
from vlm_agent.models.weights import lora_layers, precision
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.training.dry_run.hardware import gpu_of_device
from vlm_agent.training.dry_run.memory import SHARDINGS, spread, weigh
from vlm_agent.training.engine import checkpoint_layers

DTYPE = torch.bfloat16
ALL_LAYERS = 10**6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shape(parser)
    add_checkpointing(parser)
    parser.add_argument("--dropout", type=float, default=0.05, help="of LoRA (default 0.05)")
    parser.add_argument("--quantisation", choices=["nf4", "int8"], help="of the frozen language model")
    parser.add_argument("--memory", type=float, metavar="GB", help="of a smaller GPU: what this process may allocate")
    parser.add_argument("--undo", nargs="+", choices=UNDO, default=[], help="faster operations to leave out")
    parser.add_argument("--warm-up", type=int, default=2, metavar="N", help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="steps to be timed")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N slowest kernels of a step")


def add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", required=True, help="name of a shape in training/shapes.py")
    parser.add_argument("--batch", type=int, help="episodes in a row (default: the shape's)")
    parser.add_argument("--episodes", type=int, default=12, metavar="N", help="different episodes (default 12)")


def add_checkpointing(parser: argparse.ArgumentParser) -> None:
    words = "gradient checkpointing of the lowest N layers (default without N: of all)"
    parser.add_argument("--checkpointing", nargs="?", type=int, const=ALL_LAYERS, default=0, metavar="N", help=words)


def measure(options: argparse.Namespace) -> dict:
    run, episodes = prepare(options, options.quantisation, options.memory)
    return measure_rows(run, make_rows(run, episodes, options), options)


def make_rows(run: Run, episodes: list, options: argparse.Namespace) -> list[tuple[dict[str, torch.Tensor], int]]:
    return [make_row(run, episodes, number) for number in range(options.warm_up + options.steps)]


def measure_rows(run: Run, rows: list, options: argparse.Namespace) -> dict:
    """The figures of `options`. Afterwards the model runs as before, with the weights that the steps left."""
    set_dropout(run.model, options.dropout)
    with without(run.model, options.undo), checkpointed(run.model, options.checkpointing):
        return _measure(run, rows, options)


def _measure(run: Run, rows: list, options: argparse.Namespace) -> dict:
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    losses = [train(run, *row) for row in rows[: options.warm_up]]
    clock, timed = Clock(), rows[options.warm_up :]
    wait_for(options.device)
    with clock:
        losses += [train(run, *row) for row in timed]
        wait_for(options.device)
    tokens = sum(row["input_ids"].numel() for row, _ in timed)
    config = run.model.get_base_model().config
    cost = family_of(config).cost(config)
    flops = TrainingFlops(cost, trained_parts(run.shape), LORA_RANK, min(options.checkpointing, cost.layers))
    work = flops.of(sum((workload(run, row, items) for row, items in timed), NO_WORK))
    peak = peak_flops(options.device)
    largest = max(rows, key=lambda row: row[0]["input_ids"].numel())
    return {
        "attention": run.model.get_base_model().language_model.config._attn_implementation,
        "vision_attention": run.model.get_base_model().vision.config._attn_implementation,
        "flash_attention_4": options.device == "cuda" and attention.use_fa4(torch.cuda.get_device_capability()),
        "tokens_per_step": tokens / options.steps,
        "seconds_per_step": clock.seconds / options.steps,
        "steps_per_second": options.steps / clock.seconds,
        "tokens_per_second": tokens / clock.seconds,
        "model_tflops_per_step": work.model / options.steps / 1e12,
        "model_tflops_per_second": work.model / clock.seconds / 1e12,
        "mfu": None if peak is None else work.model / clock.seconds / peak,
        "hfu": None if peak is None else work.hardware / clock.seconds / peak,
        "peak_bytes": torch.cuda.max_memory_allocated() if options.device == "cuda" else peak_resident(),
        "estimated_peak_bytes": estimate(run, *largest, options),
        "losses": losses,
        "kernels": kernels(run, timed[0], options) if options.profile else None,
    }


def prepare(
    options: argparse.Namespace, quantisation: str | None = None, memory: float | None = None
) -> tuple[Run, list]:
    """The model with how it is fed and its optimiser, and episodes with screens of the shape's size."""
    if options.device == "cuda":
        total = torch.cuda.get_device_properties().total_memory
        torch.cuda.set_per_process_memory_fraction(1.0 if memory is None else min(1.0, memory * 1e9 / total))
    shape = shape_named(options.shape)
    shape = shape if options.batch is None else replace(shape, batch=options.batch)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_tokenizer(data / "tokenizer", write_episodes(data, options.episodes, shape.screen, STEPS))
        tokenizer, episodes = read_tokenizer(data / "tokenizer"), read_episodes(data)
    return Run(
        shape, packed, padded.whole_trajectories, tokenizer, options.device, DTYPE, False, quantisation
    ), episodes


def set_dropout(model: nn.Module, share: float) -> None:
    for layer in model.modules():
        if isinstance(layer, LoraLinear):
            layer.lora_dropout["default"] = nn.Dropout(share) if share else nn.Identity()


@contextmanager
def checkpointed(model: nn.Module, count: int) -> Iterator[None]:
    """Gradient checkpointing of the lowest `count` layers within the block."""
    before = [
        (module, "gradient_checkpointing", module.gradient_checkpointing)
        for module in model.modules()
        if hasattr(module, "gradient_checkpointing")
    ]
    checkpoint_layers(model, count)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@contextmanager
def without(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Operations of `UNDO` run as transformers, peft or torch run them within the block."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(UNDO[name](model))
        yield


@contextmanager
def original_forward(function: Callable, model: nn.Module) -> Iterator[None]:
    """Modules whose forward pass is `function` run that of their class."""
    changed = [module for module in model.modules() if _function(vars(module).get("forward")) is function]
    held = [vars(module).pop("forward") for module in changed]
    try:
        yield
    finally:
        for module, forward in zip(changed, held, strict=True):
            vars(module)["forward"] = forward


def _function(forward: object) -> object:
    """The function of a method or a partial."""
    return getattr(forward, "__func__", getattr(forward, "func", None))


@contextmanager
def original_rotary(model: nn.Module) -> Iterator[None]:
    with ExitStack() as stack:
        for home in {sys.modules[type(module).__module__] for module in model.modules()}:
            found = {name: vars(home)[name] for name in ROTARY if isinstance(vars(home).get(name), OnGpu)}
            stack.enter_context(replaced(home, **{name: rotary.function for name, rotary in found.items()}))
        yield


@contextmanager
def sdpa_in_tower(model: nn.Module) -> Iterator[None]:
    vision = model.get_base_model().vision
    before = vision.config._attn_implementation
    vision.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        vision.set_attn_implementation(before)


@contextmanager
def flash_attention_2(_: nn.Module) -> Iterator[None]:
    with replaced(attention, use_fa4=lambda _: False):
        getattr(torch.nn.attention, "restore_flash_attention_impl", lambda: None)()  # torch 2.11 may lack it
        try:
            yield
        finally:
            precision.use_fa4.cache_clear()  # activates it again when it is asked next


UNDO: dict[str, Callable[[nn.Module], AbstractContextManager]] = {
    "patches": partial(original_forward, vision_kernels._embed_patches),
    "windows": sdpa_in_tower,
    "varlen": lambda _: replaced(attention, can_run_kernel=lambda query, dropout=0.0: False),
    "tower_width": lambda _: replaced(vision_kernels, WIDTH_MULTIPLE=1),
    "screens": lambda _: replaced(attention, LONG_SEGMENT=math.inf),
    "fa4": flash_attention_2,
    "lora": partial(original_forward, lora_layers.adapt),
    "norms": partial(original_forward, normalise),
    "swiglu": partial(original_forward, gated_mlp),
    "rotary": original_rotary,
}
"""Name of a faster operation → what a model runs without it."""


def make_row(run: Run, episodes: list, number: int) -> tuple[dict[str, torch.Tensor], int]:
    """The one row of step `number`, and its supervised tokens."""
    batch = run.shape.batch
    batches, items = run.batches([episodes[(number * batch + place) % len(episodes)] for place in range(batch)])
    (row,) = batches
    return tree_map_only(torch.Tensor, torch.Tensor.pin_memory, row) if run.device == "cuda" else row, items


def train(run: Run, row: dict[str, torch.Tensor], items: int) -> float:
    loss = run.update([row], items)
    run.optimizer.zero_grad()
    return loss


def trained_parts(shape: Shape) -> TrainedParts:
    """What `training.models.build` trains."""
    return TrainedParts(projector="full" if shape.family == "llama_vit" else "frozen")


def peak_flops(device: str) -> float | None:
    """FLOP/s in bfloat16 of this GPU, None where its data sheet is not known."""
    gpu = gpu_of_device(torch.cuda.get_device_name()) if device == "cuda" else None
    return None if gpu is None else gpu.peak(bf16=True)


def workload(run: Run, row: dict[str, torch.Tensor], items: int) -> Workload:
    """The work of a row with `items` supervised tokens, whose screens all have the shape's size."""
    lengths = np.diff(row["cu_seqlens"])
    screens = len(row["screens" if "screens" in row else "grids"])
    size = run.processor.screens.fitted(*run.shape.screen)
    return Workload(int(lengths.sum()), causal_pairs(lengths), items, {size: screens})


def estimate(run: Run, row: dict[str, torch.Tensor], items: int, options: argparse.Namespace) -> int:
    """What a dry run estimates for one GPU and this row, CUDA's own memory included."""
    base, train = run.model.get_base_model(), trained_parts(run.shape)
    weights = weigh(run.model, base.parts, run.optimizer, None, bf16=True)
    held = spread(weights, next(sharding for sharding in SHARDINGS if sharding.stage == 0), 1, bf16=True).total
    lora = Lora(rank=LORA_RANK, dropout=options.dropout)
    precision, cost = Precision(bf16=True, frozen_bf16=True), family_of(base.config).cost(base.config)
    checkpointed = min(options.checkpointing, cost.layers)
    return held + cost.activation_bytes(workload(run, row, items), train, lora, precision, checkpointed)


def kernels(run: Run, row: tuple[dict[str, torch.Tensor], int], options: argparse.Namespace) -> list[dict]:
    """The slowest kernels (on a CPU: operations) of a step."""
    on_gpu = options.device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiler:
        train(run, *row)
        wait_for(options.device)
    time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    events = sorted(profiler.key_averages(), key=lambda event: getattr(event, time), reverse=True)
    total = sum(getattr(event, time) for event in events)
    return [
        {
            "name": event.key[:100],
            "milliseconds": getattr(event, time) / 1000,
            "share": getattr(event, time) / total,
            "calls": event.count,
        }
        for event in events[: options.profile]
    ]
