"""What differs while ZeRO-3 partitions the weights of a model."""

import pytest
import torch
from helpers import tiny
from helpers.models import families

every_family = pytest.mark.parametrize("name", families.NAMES)


@every_family
def test_screens_have_the_dtype_in_which_a_partitioned_tower_computes(name):
    """DeepSpeed partitions a float32 checkpoint as bfloat16; between passes its weights are empty and float32."""
    family = families.family(name)
    row = family.row(family.sentences.build(tiny.episode()))
    for weight in family.model.vision.parameters():
        weight.ds_tensor = torch.empty(0, dtype=torch.bfloat16)
    if name == "llama_vit":
        assert family.model._normalise(row["screens"]).dtype == torch.bfloat16
    else:
        assert family.model._pixels(row["patches"]).dtype == torch.bfloat16
