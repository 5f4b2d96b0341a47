"""A key-value cache with room to grow in: a token that is decoded is written into it, and nothing else is copied.

transformers' own concatenates, which copies the whole history of every sentence for every token.
"""

import torch
from transformers.cache_utils import Cache, DynamicLayer

_ROOM = 256  # tokens; whoever says more pays one copy more


class _GrowingLayer(DynamicLayer):
    """`keys` and `values` are views of the first tokens of buffers; whatever else sets them is copied when it grows."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self._buffers = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._appended("keys", self.keys, key_states)
        self.values = self._appended("values", self.values, value_states)
        return self.keys, self.values

    def _appended(self, name: str, stored: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        start, end = stored.shape[-2], stored.shape[-2] + new.shape[-2]
        buffer = self._buffers.get(name)
        if buffer is None or stored.data_ptr() != buffer.data_ptr() or end > buffer.shape[-2]:
            buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], end + _ROOM, new.shape[-1])
            buffer[..., :start, :] = stored
        buffer[..., start:end, :] = new
        return buffer[..., :end, :]


def growing_cache() -> Cache:
    return Cache(layer_class_to_replicate=_GrowingLayer)
