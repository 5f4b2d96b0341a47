"""Crops of any size → pictures of one size, with the icon in the middle and its background removed."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image

from vlm_agent.screens.seen import Meaning

INK = 28
"""Grey levels by which a pixel differs from the background, in any channel, to belong to the icon."""

MARGIN = 0.08
"""Around the icon, as a share of its longer side."""

BUSY = 0.35
"""Share of the border that may differ from the background before a crop counts as a picture, and is taken whole."""


def as_rgb(crop: np.ndarray) -> np.ndarray:
    """uint8 (height, width, 3) of a crop that is grey (H, W) or (H, W, 1), RGB, or RGBA (shown on white).

    Raises ValueError for any other array.
    """
    if crop.dtype != np.uint8 or crop.ndim not in (2, 3) or (crop.ndim == 3 and crop.shape[2] not in (1, 3, 4)):
        raise ValueError(f"a crop must be uint8 (height, width[, 1, 3 or 4]), and is {crop.dtype} {crop.shape}")
    if crop.ndim == 2 or crop.shape[2] == 1:
        return np.repeat(crop.reshape(*crop.shape[:2], 1), 3, 2)
    if crop.shape[2] == 3:
        return crop
    alpha = crop[..., 3:].astype(np.uint16)
    return ((crop[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def normalised(crop: np.ndarray, side: int) -> np.ndarray | None:
    """float32 (side, side, 3) in [-1, 1]: the icon's difference from its background; None where nothing is drawn.

    The background is the median colour of the crop's border. The icon is cut out with a small margin, centred on a
    square and scaled to `side`, so that neither the size of the touch area nor a theme's colour matters.
    """
    found = _cut_out(crop)
    if found is None:
        return None
    # Pillow scales bytes fast: half the difference, moved to 0 … 255.
    picture = Image.fromarray((_on_square(found[0]) // 2 + 128).astype(np.uint8))
    scaled = picture.resize((side, side), Image.Resampling.BILINEAR)
    return (np.asarray(scaled, np.float32) - 128) / 127.5


def squared(crop: np.ndarray, side: int) -> np.ndarray | None:
    """uint8 (side, side, 3): the same in its own colours, on its background."""
    found = _cut_out(crop)
    if found is None:
        return None
    difference, background = found
    picture = Image.fromarray((_on_square(difference) + background).astype(np.uint8))
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC))


def _cut_out(crop: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """int16 (height, width, 3) difference of the icon alone from the background, and the background's colour (3,)."""
    pixels = as_rgb(crop)
    if min(pixels.shape[:2]) < 2:
        return None
    background = np.median(_border(pixels), 0).astype(np.int16)
    difference = pixels.astype(np.int16) - background
    red, green, blue = np.moveaxis(np.abs(difference), 2, 0)
    ink = np.maximum(np.maximum(red, green), blue) > INK  # several times faster than `max(2)`
    if not ink.any():
        return None
    if _border(ink).mean() < BUSY:
        rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
        difference = difference[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return difference, background


def _border(array: np.ndarray) -> np.ndarray:
    """The outermost pixels, (count, …)."""
    return np.concatenate([array[0], array[-1], array[1:-1, 0], array[1:-1, -1]])


def _on_square(difference: np.ndarray) -> np.ndarray:
    """The difference in the middle of a square, with `MARGIN` around it; 0 where there is background."""
    height, width = difference.shape[:2]
    square = max(height, width) + 2 * round(MARGIN * max(height, width))
    result = np.zeros((square, square, 3), np.int16)
    top, left = (square - height) // 2, (square - width) // 2
    result[top : top + height, left : left + width] = difference
    return result


COUNT, BATCH = 5, 64
"""Guesses for a crop, and crops in one forward pass."""


def guesses(
    crops: Sequence[np.ndarray],
    prepare: Callable[[np.ndarray], np.ndarray | None],
    logits: Callable[[torch.Tensor], torch.Tensor],
    names: Sequence[str],
) -> list[tuple[Meaning, ...]]:
    """The best `COUNT` meanings of each crop, best first; none for a crop in which nothing is drawn.

    `prepare`: crop → array of one shape, or None. `logits`: a batch of them → (B, names). The score of a meaning is its
    share of the softmax.
    """
    prepared = [prepare(crop) for crop in crops]
    seen = [number for number, array in enumerate(prepared) if array is not None]
    result: list[tuple[Meaning, ...]] = [() for _ in crops]
    for start in range(0, len(seen), BATCH):
        numbers = seen[start : start + BATCH]
        with torch.inference_mode():
            batch = torch.from_numpy(
                np.stack([array for array in map(prepared.__getitem__, numbers) if array is not None])
            )
            scores, places = logits(batch).float().softmax(1).topk(min(COUNT, len(names)))
        for number, score, place in zip(numbers, scores.tolist(), places.tolist(), strict=True):
            result[number] = tuple(Meaning(names[index], value) for index, value in zip(place, score, strict=True))
    return result
