"""Method (c), ours: whole trajectories packed in one row, logits only at supervised positions."""

from collections.abc import Sequence

import torch

from benchmarks.training.shapes import Shape
from vlm_agent.models.family import Processor, family, family_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.weights.lora_layers import fuse_lora
from vlm_agent.sentences import Sentence


def model_class(shape: Shape) -> type | None:
    return None if shape.family == "llama_vit" else family(shape.family).model


def collate(sentences: Sequence[Sentence], processor: Processor, special: dict[str, int]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in processor.collate(list(sentences)).items() if name not in NOT_FOR_MODELS}


def loss(model, batch: dict[str, torch.Tensor], items: int) -> torch.Tensor:
    return model(**batch, num_items_in_batch=items).loss


def prepare(model) -> None:
    base = model.get_base_model()
    family_of(base.config).prepare(base)
    fuse_lora(model)
