"""Finds a step by its decoded pixels."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from vlm_agent.models.features.store.layout import DIGEST_SIZE


def pixel_digest(pixels: np.ndarray) -> bytes:
    """16 bytes that identify uint8 (height, width, 3) pixels, their shape included.

    PNG and WebP decode to the same pixels everywhere, JPEG only with the same decoder.
    """
    digest = blake2b(str(pixels.shape).encode(), digest_size=DIGEST_SIZE)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


class PixelIndex:
    """Row numbers by pixel digest, 24 bytes a row: both halves of each digest, sorted by the first, and its row."""

    def __init__(self, digests: Sequence[np.ndarray]) -> None:
        """`digests`: uint8 (rows, 16) arrays, whose rows are numbered through in order."""
        halves = np.concatenate([np.zeros((0, 2), ">u8"), *(np.asarray(part).view(">u8") for part in digests)])
        order = np.argsort(halves[:, 0], kind="stable")
        self._first = halves[order, 0].astype(np.uint64)
        self._second = halves[order, 1].astype(np.uint64)
        self._rows = order

    def rows(self, digests: Sequence[bytes]) -> list[int | None]:
        """The first row with each digest; None where no row has it."""
        wanted = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
        starts, ends = (np.searchsorted(self._first, wanted[:, 0], side) for side in ("left", "right"))
        return [self._row(*place) for place in zip(starts, ends, wanted[:, 1], strict=True)]

    def _row(self, start: int, end: int, second: np.uint64) -> int | None:
        same = np.flatnonzero(self._second[start:end] == second)
        return int(self._rows[start + same[0]]) if len(same) else None
