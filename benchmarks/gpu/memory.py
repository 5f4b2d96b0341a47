"""Peak memory of a training step beside the dry run's estimate, and attention calls per row, at any size without a GPU.

Runs the program of `gpu.py train` on one row, forward, backward and update, with tensors that have no values
(without_values.py). `peak_bytes` is the most that tensors take; `estimated_peak_bytes` is the estimate without the 1 GB
that it adds for CUDA and its libraries. Left out of both: what kernels allocate inside themselves, and fragments.

`attention_calls`: of the forward pass of a row, in the vision tower and the language model: one by one (`loop`), and by
torch's variable-length kernel (`varlen`). A backward pass makes as many for the language
model, gradient checkpointing as many again.
"""

import argparse
from collections import Counter
from copy import copy

import torch
from torch.nn import functional

from benchmarks.gpu import train_step
from benchmarks.gpu.without_values import ATTENTION, WithoutValues, attention_by, fill, like_a_gpu, replaced
from benchmarks.training.measure import BETAS, LEARNING_RATE, WEIGHT_DECAY
from benchmarks.training.road import Run
from vlm_agent.models import attention
from vlm_agent.training.dry_run.memory import CUDA_BYTES
from vlm_agent.training.engine import checkpoint_layers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    train_step.add_shape(parser)
    train_step.add_checkpointing(parser)
    parser.add_argument("--dropout", type=float, default=0.05, help="of LoRA (default 0.05)")


def measure(options: argparse.Namespace) -> dict:
    on_meta = copy(options)
    on_meta.device = "meta"
    run, episodes = train_step.prepare(on_meta)
    run.device = "cpu"
    train_step.set_dropout(run.model, options.dropout)
    with WithoutValues() as tensors:
        fill(run.model)
        row, items = train_step.make_row(run, episodes, 0)
        calls = {way: attention_calls(run, row, way) for way in ATTENTION}
        checkpoint_layers(run.model, options.checkpointing)
        trained = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
        run.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, BETAS, weight_decay=WEIGHT_DECAY, foreach=True)
        with like_a_gpu():
            train_step.train(run, row, items)
            tensors.restart()
            train_step.train(run, row, items)
        peak, estimated = tensors.peak, train_step.estimate(run, row, items, options) - CUDA_BYTES
    return {
        "tokens": row["input_ids"].numel(),
        "sentences": len(row["cu_seqlens"]) - 1,
        "screens": len(row["grids"] if "grids" in row else row["screens"]),
        "peak_bytes": peak,
        "estimated_peak_bytes": estimated,
        "peak_over_estimate": peak / estimated,
        "attention_calls": calls,
    }


def attention_calls(run: Run, row: dict[str, torch.Tensor], way: str) -> dict[str, int]:
    """Attention calls of a forward pass by part; they are counted and not executed."""
    calls: Counter[str] = Counter()

    def sdpa(query, key, value, *_, is_causal=False, **__):
        calls["language_model" if is_causal else "vision"] += 1
        return query.new_empty(*query.shape[:-1], value.shape[-1])

    def variable_length(query, *_, window_size, **__):
        calls["vision" if window_size == (-1, -1) else "language_model"] += 1
        return torch.empty_like(query)

    with (
        torch.no_grad(),
        attention_by(way),
        replaced(functional, scaled_dot_product_attention=sdpa),
        replaced(attention, varlen_attn=variable_length),
    ):
        run.loss(row, 1)
    return dict(calls)
