"""Loading and saving under DeepSpeed's ZeRO-3, which partitions every weight over the ranks.

Weights of a checkpoint are partitioned at loading, so that a model may be larger than one GPU. Random weights are
created whole, so that every rank draws the same ones, and are partitioned when training starts.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def gathered_for_saving(model: nn.Module) -> Iterator[None]:
    """Inside, every weight that `adapters.save_trained_weights` writes is whole on every rank, read-only: those of an
    adapter, else all. A collective: all ranks must enter."""
    everything = not isinstance(model, PeftModel)
    cut = [
        parameter
        for parameter in model.parameters()
        if hasattr(parameter, "ds_id") and (everything or parameter.requires_grad)
    ]
    if not cut:
        yield
        return
    from deepspeed import zero  # takes seconds to import

    with zero.GatheredParameters(cut):
        yield


def size(parameter: nn.Parameter) -> int:
    """The number of elements over all ranks."""
    return getattr(parameter, "ds_numel", parameter.numel())
