"""The cost of a text model: that of its language model; screens are part of its tokens."""

from transformers import PretrainedConfig

from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision, Workload, decoder_shape
from vlm_agent.recipe.model import Lora, TrainedParts


class TextCost(DecoderOnlyCost):
    def __init__(self, config: PretrainedConfig) -> None:
        self.decoder = decoder_shape(config)

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return super().flops(load, _without_vision(train), rank, checkpointing)

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointing: bool
    ) -> int:
        return super().activation_bytes(load, _without_vision(train), lora, precision, checkpointing)

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        return Flops()

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        return 0


def _without_vision(train: TrainedParts) -> TrainedParts:
    """A recipe with `base` may train parts that a text model does not have."""
    return train.model_copy(update={"vision": "frozen", "projector": "frozen"})
