"""The cost of a Llama+ViT.

Its vision tower can be any encoder, so the tower runs once on the meta device, where nothing is computed, and its
products and results are counted.
"""

import json
from functools import lru_cache
from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision, decoder_shape
from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig
from vlm_agent.models.weights.adapters import choose_trained_weights, without_adapter
from vlm_agent.models.weights.zero3 import without_zero3_partitioning
from vlm_agent.recipe.model import Lora, TrainedParts


class LlamaViTCost(DecoderOnlyCost):
    def __init__(self, config: LlamaViTConfig) -> None:
        self.decoder = decoder_shape(config.text_config)
        self._config = config.to_json_string()

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return screen_flops(self._config, train, rank, checkpointing)

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        widest, together = screen_values(self._config)
        return precision.bytes * (4 * widest if train.vision == "frozen" else together)


@lru_cache(maxsize=16)
def screen_flops(config: str, train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
    """The FLOPs of one screen through the encoder and projector of a `LlamaViTConfig`, as JSON."""
    model = _screen_model(config, train, rank)
    with FlopCounterMode(display=False) as counter:
        seen, _ = model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
        forward = counter.get_total_flops()
        if seen.requires_grad:
            seen.sum().backward()
        backward = counter.get_total_flops() - forward
    return Flops(forward, backward, forward if checkpointing and train.vision != "frozen" else 0)


@lru_cache(maxsize=16)
def screen_values(config: str) -> tuple[int, int]:
    """The numbers in the widest result of any layer, and in all results together, when a model of this
    `LlamaViTConfig`, as JSON, sees one screen."""
    sizes: list[int] = []
    model = _screen_model(config, TrainedParts(), rank=0)
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _, __, result: sizes.append(result.numel()))
    model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
    return max(sizes), sum(sizes)


def _screen_model(config_json: str, train: TrainedParts, rank: int) -> LlamaViT:
    """The model on the meta device, its encoder and projector adapted, with one layer of the language model, which does
    not run."""
    config = LlamaViTConfig.from_dict(json.loads(config_json))
    config.text_config.num_hidden_layers = 1
    frozen = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "frozen")
    with torch.device("meta"), without_zero3_partitioning(True):
        model = LlamaViT(config)
        # Fused attention has a kernel for each device, and the counter knows only some; plain products it knows all.
        if model.vision._supports_sdpa and model.vision._can_set_attn_implementation():
            model.vision.set_attn_implementation("eager")
        adapted = choose_trained_weights(model, train.model_copy(update=frozen), Lora(rank=max(rank, 1)))
    model = cast("LlamaViT", without_adapter(adapted))
    # Normalising has no product, and asks for autocast, which the meta device does not have.
    vars(model)["_normalise"] = lambda screens: screens
    return model
