"""DeepSpeed's ZeRO-3 cuts every weight among the ranks; here is what has to know of it.

Weights of a checkpoint are cut while they are loaded, which is how a model gets in that no single GPU holds. Random
ones are made whole, so that every rank draws the same ones, and are cut when training begins.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from peft import PeftModel
from torch import nn
from transformers.integrations import deepspeed as integration


@contextmanager
def made_whole(is_wanted: bool) -> Iterator[None]:
    """Models that are made inside are whole on every rank, where that `is_wanted`."""
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
def saved_weights_whole(model: nn.Module) -> Iterator[None]:
    """Inside, every weight that `adapters.save_trained_weights` writes is whole on every rank, to be read: the trained
    ones of an adapter, all of any other model. A collective: all ranks enter."""
    everything = not isinstance(model, PeftModel)
    cut = [
        parameter
        for parameter in model.parameters()
        if hasattr(parameter, "ds_id") and (everything or parameter.requires_grad)
    ]
    if not cut:
        yield
        return
    from deepspeed import zero  # seconds to import, and only wanted here

    with zero.GatheredParameters(cut):
        yield


def size(parameter: nn.Parameter) -> int:
    """Its numbers, on all ranks together."""
    return getattr(parameter, "ds_numel", parameter.numel())
