"""Crops as a phone might show them: an icon drawn at random, in any colour, size, stroke and quality."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

SIZES = (12, 96)
"""Least and greatest longer side of an icon, pixels."""


def draw(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """uint8 (height, width, 3) of an icon's ink, uint8 (height, width)."""
    size = round(float(np.exp(rng.uniform(*np.log(SIZES)))))
    mask = _ink(mask, size, rng)
    height, width = mask.shape
    on_plate = rng.random() < 0.2
    room = size * (0.25 + 0.35 * rng.random()) if on_plate else 0.0
    top, left, bottom, right = (int(room + size * 0.45 * rng.random() ** 2) for _ in range(4))
    background = _colour(rng)
    pixels = _backdrop(top + height + bottom, left + width + right, background, rng)
    behind = background
    if on_plate:
        behind = _other_colour(background, rng, 40)
        middle = (top + height / 2, left + width / 2)
        pixels = _plate(pixels, middle, min(room, top, left, bottom, right) * 0.85 + size / 2, behind, rng)
    ink = (mask * rng.uniform(0.7, 1.0)).astype(np.float32)[..., None] / 255
    place = pixels[top : top + height, left : left + width]
    place[:] = place * (1 - ink) + _other_colour(behind, rng, 70) * ink
    if rng.random() < 0.05:
        _badge(pixels, (top, left + width), size, rng)
    return _worse(pixels.clip(0, 255).astype(np.uint8), rng)


def pick(of_meaning: np.ndarray, groups: Sequence[np.ndarray], rng: np.random.Generator) -> int:
    """The number of an icon: half of the time of any icon, else of any meaning and one of its icons.

    `of_meaning`: (icons,) the meaning of each icon. `groups`: the icons' numbers by meaning.
    """
    if rng.random() < 0.5:
        return int(rng.integers(len(of_meaning)))
    group = groups[int(rng.integers(len(groups)))]
    return int(group[rng.integers(len(group))])


def _ink(mask: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """uint8: the mask with another stroke, a little turned and stretched, its longer side about `size` pixels."""
    picture = Image.fromarray(np.pad(mask, 8))
    kind = rng.random()
    if kind < 0.18:
        thin = picture.filter(ImageFilter.MinFilter(int(rng.choice((3, 5)))))
        picture = thin if np.asarray(thin).sum() > 0.4 * mask.sum() else picture
    elif kind < 0.3:
        picture = picture.filter(ImageFilter.MaxFilter(3))
    elif kind < 0.36:
        picture = ImageChops.subtract(picture, picture.filter(ImageFilter.MinFilter(int(rng.choice((5, 7))))))
    if rng.random() < 0.3:
        picture = picture.rotate(float(rng.uniform(-8, 8)), Image.Resampling.BILINEAR, expand=True)
    scale = size / max(mask.shape) * rng.uniform(0.92, 1.08, 2)
    width, height = (max(2, round(length * by)) for length, by in zip(picture.size, scale, strict=True))
    return np.asarray(
        picture.resize((width, height), Image.Resampling.BOX if rng.random() < 0.7 else Image.Resampling.BILINEAR)
    )


def _colour(rng: np.random.Generator) -> np.ndarray:
    """float32 (3,): mostly white, black or grey, as on phones."""
    kind = rng.random()
    if kind < 0.45:
        return np.full(3, rng.choice((255, 250, 240, 0, 18, 32)), np.float32) + rng.integers(-4, 5, 3)
    if kind < 0.65:
        return np.full(3, rng.integers(0, 256), np.float32)
    return rng.integers(0, 256, 3).astype(np.float32)


def _other_colour(than: np.ndarray, rng: np.random.Generator, by: float) -> np.ndarray:
    """A colour that differs by at least `by` grey levels in some channel."""
    while True:
        colour = _colour(rng)
        if np.abs(colour - than).max() >= by:
            return colour


def _backdrop(height: int, width: int, colour: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float32 (height, width, 3): one colour, a gradient, or the blurred patches of a wallpaper."""
    kind = rng.random()
    if kind < 0.82:
        return np.broadcast_to(colour, (height, width, 3)).astype(np.float32)
    if kind < 0.9:
        step = np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None, None]
        return np.repeat(colour + step * rng.uniform(-50, 50, 3).astype(np.float32), width, 1)
    patches = (colour + rng.normal(0, 25, (4, 4, 3))).clip(0, 255).astype(np.uint8)
    return np.asarray(Image.fromarray(patches).resize((width, height), Image.Resampling.BICUBIC), np.float32).copy()


def _plate(
    pixels: np.ndarray, middle: tuple[float, float], radius: float, colour: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A disc, a square or one with round corners behind the icon."""
    height, width = pixels.shape[:2]
    mask = Image.new("L", (width * 2, height * 2))
    corner = radius * float(rng.choice((1.0, 1.0, 0.5, 0.25, 0.0)))
    (y, x), pen = middle, ImageDraw.Draw(mask)
    box = [2 * (x - radius), 2 * (y - radius), 2 * (x + radius) - 1, 2 * (y + radius) - 1]
    pen.rounded_rectangle(box, 2 * corner, 255)
    ink = np.asarray(mask.reduce(2), np.float32)[..., None] / 255
    return pixels * (1 - ink) + colour * ink


def _badge(pixels: np.ndarray, corner: tuple[int, int], size: int, rng: np.random.Generator) -> None:
    """The dot of a new message on the icon's upper right corner."""
    radius = size * rng.uniform(0.1, 0.2)
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    inside = (rows - corner[0] - radius / 2) ** 2 + (columns - corner[1] + radius / 2) ** 2 <= radius**2
    pixels[inside] = (230, 40, 40) if rng.random() < 0.7 else _colour(rng)


def _worse(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Blur and JPEG."""
    picture = Image.fromarray(pixels)
    if rng.random() < 0.2:
        picture = picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.9))))
    if rng.random() < 0.3:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(rng.integers(45, 96)))
        picture = Image.open(file)
    return np.asarray(picture)
