"""Preprocessing of screens as a checkpoint's image processor does it: resize, crop the centre, normalise.

Resizing is Pillow's, as in the processors that the published checkpoints were used with; transformers' torchvision
processors differ from it by up to a few of 255 levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import json_object

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BILINEAR, BICUBIC = int(Image.Resampling.BILINEAR), int(Image.Resampling.BICUBIC)


@dataclass(frozen=True)
class Preprocessing:
    """uint8 (height, width, 3) → uint8 (3, *output), and the numbers to normalise that with.

    `resize`: (height, width) to stretch to, or the length of the shortest edge. `crop`: (height, width) of the centre
    that is kept, None for all. `resample`: Pillow's number. A pixel p becomes (p * rescale - mean) / std.
    """

    resize: tuple[int, int] | int
    crop: tuple[int, int] | None
    resample: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    rescale: float = 1 / 255

    @property
    def output(self) -> tuple[int, int]:
        """(height, width) of every screen after it."""
        if self.crop is not None:
            return self.crop
        assert isinstance(self.resize, tuple)  # noqa: S101 (`read_preprocessing`)
        return self.resize

    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        height, width = self._resized(*screenshot.shape[:2])
        image = Image.fromarray(screenshot)
        if (height, width) != screenshot.shape[:2]:
            image = image.resize((width, height), Image.Resampling(self.resample))
        rows, columns = self.output
        top, left = (height - rows) // 2, (width - columns) // 2
        kept = np.asarray(image)[top : top + rows, left : left + columns]
        return np.ascontiguousarray(kept.transpose(2, 0, 1))

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.resize, tuple):
            return self.resize
        if height <= width:
            return self.resize, int(self.resize * width / height)
        return int(self.resize * height / width), self.resize

    def share(self, height: int, width: int) -> float:
        """The share of a screen's area that is left after the crop."""
        rows, columns = self._resized(height, width)
        return self.output[0] * self.output[1] / (rows * columns)


def read_preprocessing(content: Mapping[str, Any] | None, default: Preprocessing, where: str) -> Preprocessing:
    """The preprocessing that a processor's configuration describes; absent keys are those of `default`.

    Raises CheckpointError, which names `where`, for settings that cannot be followed.
    """
    if content is None:
        return default
    try:
        return _read_preprocessing(content, default, where)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(f"{where}: a value cannot be read ({error}); correct it, or download it again") from None


def _read_preprocessing(content: Mapping[str, Any], default: Preprocessing, where: str) -> Preprocessing:
    content = {key: value for key, value in content.items() if value is not None}
    for key, wanted in {"do_resize": True, "do_pad": False}.items():
        if content.get(key, wanted) is not wanted:
            raise CheckpointError(f"{where}: {key} {content[key]} is not supported; set it to {wanted}")
    resize = _resize(content["size"], isinstance(default.resize, tuple), where) if "size" in content else default.resize
    crop = _crop(content, default)
    if crop is None and not isinstance(resize, tuple):
        raise CheckpointError(
            f"{where}: with the shortest edge alone, screens differ in shape; set size to a height and a width"
        )
    result = Preprocessing(
        resize,
        crop,
        int(Image.Resampling(content.get("resample", default.resample))),
        _three(content.get("image_mean", default.mean)) if content.get("do_normalize", True) else (0.0, 0.0, 0.0),
        _three(content.get("image_std", default.std)) if content.get("do_normalize", True) else (1.0, 1.0, 1.0),
        float(content.get("rescale_factor", default.rescale)) if content.get("do_rescale", True) else 1.0,
    )
    edges = resize if isinstance(resize, tuple) else (resize, resize)
    if min(*edges, *(crop or edges)) < 1:
        raise ValueError(f"a side of {crop or resize} is below 1")
    if crop is not None and (crop[0] > edges[0] or crop[1] > edges[1]):
        raise CheckpointError(f"{where}: crop_size {crop} is larger than size {resize}; set crop_size to at most size")
    return result


def _resize(size: Any, is_square: bool, where: str) -> tuple[int, int] | int:
    if isinstance(size, int):
        return (size, size) if is_square else size
    size = {key: value for key, value in size.items() if value is not None}
    if set(size) == {"shortest_edge"}:
        return int(size["shortest_edge"])
    if set(size) == {"height", "width"}:
        return int(size["height"]), int(size["width"])
    raise CheckpointError(f"{where}: size {size} is not supported; set height and width, or shortest_edge")


def _crop(content: Mapping[str, Any], default: Preprocessing) -> tuple[int, int] | None:
    if not content.get("do_center_crop", default.crop is not None):
        return None
    size = content.get("crop_size", default.crop)
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def _three(values: Any) -> tuple[float, float, float]:
    first, second, third = values
    return float(first), float(second), float(third)


def processor_content(preprocessor: Path | None, processor: Path | None) -> dict | None:
    """The image processor's settings: preprocessor_config.json, else the part of processor_config.json that is about
    images; None without either. Raises CheckpointError for a file that is not JSON."""
    if preprocessor is not None:
        return json_object(preprocessor)
    content = None if processor is None else json_object(processor).get("image_processor")
    if content is not None and not isinstance(content, dict):
        raise CheckpointError(f"{processor} is damaged: image_processor is not a JSON object; download it again")
    return content
