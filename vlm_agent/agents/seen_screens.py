"""What a Llama+ViT made of the screens that it saw last: one that comes again is not looked at again.

An agent that acts reads its whole history at every step; an evaluation shows the same screens with history and without,
and a thousand times the same grey one. With a small language model, looking is most of the work.

On a CPU screens are looked at one by one, which is no slower there, so that what is made of one is the same to the bit
whatever else is asked for; on a GPU all that are new are looked at together.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch

from vlm_agent.models.llama_vit import LlamaViT

KEPT_BYTES = 1 << 28


class SeenScreens:
    """Of one model, whose weights stay as they are. Keeps at most `kept_bytes` of visual tokens, the latest used."""

    def __init__(self, model: LlamaViT, kept_bytes: int = KEPT_BYTES):
        self._model, self._kept_bytes = model, kept_bytes
        self._tokens: OrderedDict[tuple, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, screens: Sequence[np.ndarray]) -> torch.Tensor:
        """uint8 screens (3, height, width), of the model's size, to visual tokens (screens, tokens, hidden)."""
        kind = self._model.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        keys = [(precision, blake2b(screen.tobytes(), digest_size=16).digest()) for screen in screens]
        with self._lock:
            known = {key: self._tokens[key] for key in keys if key in self._tokens}
        new = {key: screen for key, screen in zip(keys, screens, strict=True) if key not in known}
        known |= self._look(new)
        self._keep({key: known[key] for key in keys})
        return torch.stack([known[key] for key in keys])

    def _look(self, new: dict[tuple, np.ndarray]) -> dict[tuple, torch.Tensor]:
        together = 1 if self._model.device.type == "cpu" else max(1, len(new))
        found, keys = {}, list(new)
        for start in range(0, len(keys), together):
            some = keys[start : start + together]
            screens = torch.from_numpy(np.stack([new[key] for key in some])).to(self._model.device)
            # Each by itself: a part of a batch would hold all of it in memory.
            found |= zip(some, (tokens.clone() for tokens in self._model.see(screens)[1]), strict=True)
        return found

    def _keep(self, used: dict[tuple, torch.Tensor]) -> None:
        with self._lock:
            for key, tokens in used.items():
                self._tokens[key] = tokens
                self._tokens.move_to_end(key)
            size = sum(tokens.nbytes for tokens in self._tokens.values())
            while size > self._kept_bytes:
                size -= self._tokens.popitem(last=False)[1].nbytes
