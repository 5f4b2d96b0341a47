"""Loading and saving under DeepSpeed's ZeRO.

ZeRO-3 partitions every weight over the ranks. Weights of a checkpoint are partitioned at loading, so that a model may
be larger than one GPU. Random weights are created whole, so that every rank draws the same ones, and are partitioned
when training starts. With mixed precision ZeRO-2 and ZeRO-3 train bfloat16 weights and partition float32 copies of
them, which the optimiser updates.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers.integrations import deepspeed as integration


@contextmanager
def without_zero3_partitioning(is_wanted: bool) -> Iterator[None]:
    """If `is_wanted`, models created inside are whole on every rank."""
    reference = integration._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    if not is_wanted or config is None:
        yield
        return
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration.set_hf_deepspeed_config(config)


def state_for_saving(model: nn.Module, keep: bool) -> dict[str, torch.Tensor] | None:
    """The state dict that `adapters.save_trained_weights` writes, in main memory; None where DeepSpeed shards nothing.

    Trained weights are the optimiser's float32 copies: with bfloat16 the model holds only rounded ones. Frozen weights
    keep their dtype; those under an adapter are left out. One weight at a time is whole on a GPU, because a model that
    needs ZeRO-3 does not fit there. A collective: all ranks must call it. Those without `keep` get an empty one.
    """
    sharded = [parameter for parameter in model.parameters() if _is_sharded(parameter)]
    if not sharded:
        return None
    state: dict[str, torch.Tensor] = {}
    whole: dict[int, torch.Tensor] = {}  # tied weights have two names
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, nn.Parameter) and isinstance(model, PeftModel) and not value.requires_grad:
            continue
        if id(value) not in whole:
            whole[id(value)] = _whole(value, keep)
        state[name] = whole[id(value)]
    return state if keep else {}


def _is_sharded(parameter: nn.Parameter) -> bool:
    """Whether ZeRO-3 partitions it, or ZeRO-2 its float32 copy."""
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _whole(value: Any, keep: bool) -> Any:
    """A copy in main memory; without `keep` none, after the same collectives."""
    if not isinstance(value, nn.Parameter) or not _is_sharded(value):
        if not keep:
            return None
        return value.detach().cpu() if isinstance(value, torch.Tensor) else value
    from deepspeed import zero  # takes seconds to import
    from deepspeed.utils import safe_get_full_fp32_param

    if value.requires_grad:
        copy = safe_get_full_fp32_param(value)
        return copy.cpu() if keep else torch.empty(0)
    with zero.GatheredParameters([value]):
        return value.detach().to("cpu", copy=True) if keep else torch.empty(0)
