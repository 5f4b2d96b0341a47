"""Operations on weights: adapters, quantisation, data types, ZeRO-3, merging."""

from typing import cast

from torch import nn


def parts_of(model: nn.Module | type[nn.Module]) -> dict[str, str]:
    """The module path of each part that a recipe freezes, adapts or trains in full; of a family's model or a PeftModel
    around one."""
    return cast("dict[str, str]", getattr(model, "parts"))  # noqa: B009 (no attribute of every module)
