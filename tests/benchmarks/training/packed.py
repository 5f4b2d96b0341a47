"""Road (c), ours: whole trajectories end to end in one row, logits at supervised positions only."""

from collections.abc import Sequence

import torch

from training.shapes import Shape
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.qwen_vl import QWEN_VL
from vlm_agent.models.reading import Reading
from vlm_agent.sentences import Sentence

_NOT_READ = {"about", "kinds"}
"""What of a row is for messages and the log."""


def model_class(shape: Shape) -> type | None:
    return QWEN_VL.get(shape.family)


def collate(sentences: Sequence[Sentence], reading: Reading, special: dict[str, int]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in reading.rows(list(sentences)).items() if name not in _NOT_READ}


def loss(model, batch: dict[str, torch.Tensor], items: int) -> torch.Tensor:
    return model(**batch, num_items_in_batch=items).loss


def prepare(model) -> None:
    base = model.get_base_model()
    choose_attention(base.vision, base.language_model)
