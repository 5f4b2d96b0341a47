"""transformers' own models with a second forward pass, over packed rows."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from torch import nn


class ReadsRows(nn.Module):
    """A mixin before a class of transformers, whose `forward` then calls `read_row` for a batch with `row_argument`.

    Weights, their names and `generate` stay transformers' own.
    """

    row_argument: ClassVar[str]
    # Trainer then passes `num_items_in_batch`: under accumulation every supervised token has the same weight.
    accepts_loss_kwargs = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.forward = _or_row(super().forward)

    @classmethod
    def is_custom_code(cls) -> bool:
        """False: published checkpoints use old weight names, which transformers converts at loading and saving only for
        its own classes; otherwise these weights would stay random."""
        return False

    def read_row(self, *args: Any, **batch: Any) -> Any:
        """The loss of a batch; its first argument is `row_argument`."""
        raise NotImplementedError


def _or_row(forward: Callable) -> Callable:
    """The signature is unchanged, because `generate` inspects it."""

    @functools.wraps(forward)
    def forward_or_row(self: ReadsRows, *args: Any, **batch: Any) -> Any:
        row = batch.pop(self.row_argument, None)
        return forward(self, *args, **batch) if row is None else self.read_row(row, **batch)

    return forward_or_row
