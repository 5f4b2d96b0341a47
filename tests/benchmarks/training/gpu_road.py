"""Ours at the shapes of 7B models, in a fresh process on a GPU: random weights in bfloat16, LoRA in float32 under mixed
precision, gradient checkpointing, rows of whole trajectories.

Rows are made before the clock starts, as loader processes do in a run; their way to the GPU is timed. Model FLOPs are
those of `vlm_agent.training.flops`: what a step needs, without what checkpointing computes again.
`--device cpu --shape llama_vit` tries the same code where there is no GPU.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

import vlm_agent.models  # noqa: F401 (before peft, which imports torchvision)
from training import packed, padded
from training.episodes import read_episodes
from training.measure import Clock, peak_resident, report
from training.models import LORA_RANK
from training.road import Run
from training.shapes import Shape, shape_named
from training.words import read_tokenizer
from vlm_agent.models.recipe import TrainedParts
from vlm_agent.training.flops import StepFlops, load_of
from vlm_agent.training.hardware import gpu_of_device
from vlm_agent.training.shapes import shape_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", required=True, help="the name of one of the shapes")
    parser.add_argument("--data", type=Path, required=True, help="folder of the episodes; tokenizer/ in it")
    parser.add_argument("--batch", type=int, help="episodes in a row (default: the shape's)")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="steps to be timed")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    shape = shape_named(options.shape)
    shape = shape if options.batch is None else replace(shape, batch=options.batch)
    tokenizer = read_tokenizer(options.data / "tokenizer")
    run = Run(shape, packed, padded.whole_trajectories, tokenizer, options.device, torch.bfloat16)
    run.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    report(measure(run, read_episodes(options.data), options))


def measure(run: Run, episodes: list, options: argparse.Namespace) -> dict:
    on_gpu = options.device == "cuda"
    rows = [made(run, episodes, number, on_gpu) for number in range(options.warm_up + options.steps)]
    losses = [train(run, *row) for row in rows[: options.warm_up]]
    clock = Clock()
    if on_gpu:
        torch.cuda.synchronize()
    with clock:
        losses += [train(run, *row) for row in rows[options.warm_up :]]
        if on_gpu:
            torch.cuda.synchronize()
    timed = [row for row, _ in rows[options.warm_up :]]
    tokens = sum(row["input_ids"].numel() for row in timed)
    counted = flops(run)
    done = sum(counted.of(load_of(row)).model for row in timed)
    peak = gpu_peak() if on_gpu else None
    return {
        "device": torch.cuda.get_device_name() if on_gpu else options.device,
        "attention": run.model.get_base_model().language_model.config._attn_implementation,
        "tokens_per_second": tokens / clock.seconds,
        "tokens_a_step": tokens / options.steps,
        "seconds_a_step": clock.seconds / options.steps,
        "model_tflops_per_second": done / clock.seconds / 1e12,
        "mfu": None if peak is None else done / clock.seconds / peak,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else peak_resident(),
        "losses": losses,
    }


def made(run: Run, episodes: list, number: int, pinned: bool) -> tuple[dict[str, torch.Tensor], int]:
    """The one row of step `number`, and its supervised tokens."""
    batch = run.shape.batch
    batches, items = run.batches([episodes[(number * batch + place) % len(episodes)] for place in range(batch)])
    (row,) = batches
    return {name: value.pin_memory() if pinned else value for name, value in row.items()}, items


def train(run: Run, row: dict[str, torch.Tensor], items: int) -> float:
    loss = run.update([row], items)
    run.optimizer.zero_grad()
    return loss


def flops(run: Run) -> StepFlops:
    return StepFlops(shape_of(run.model.get_base_model().config), trained(run.shape), LORA_RANK, checkpointing=True)


def trained(shape: Shape) -> TrainedParts:
    """What `training.models.build` trains."""
    return TrainedParts(projector="full" if shape.family == "llama_vit" else "frozen")


def gpu_peak() -> float | None:
    """FLOP/s in bfloat16 of this GPU, None where its data sheet is not known."""
    gpu = gpu_of_device(torch.cuda.get_device_name())
    return None if gpu is None else gpu.peak(bf16=True)


if __name__ == "__main__":
    main()
