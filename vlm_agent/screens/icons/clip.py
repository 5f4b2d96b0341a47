"""`clip:FOLDER`: a CLIP checkpoint on disk, never asked of the hub, matches crops to descriptions of the meanings.

VisionTasker, section 4.3.2.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError

from vlm_agent.errors import CheckpointError, UserError
from vlm_agent.files.console import hide_loading_bars
from vlm_agent.screens.icons import LOOKS, MEANINGS
from vlm_agent.screens.icons.crops import guesses, squared
from vlm_agent.screens.seen import IconReader, Meaning

if TYPE_CHECKING:
    from transformers import CLIPModel

MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The values of OpenAI's CLIP; a checkpoint's `preprocessor_config.json` may state others."""


def description(meaning: str) -> str:
    """What a crop is compared with, such as "an icon of a gear: settings"."""
    return f"an icon of {LOOKS[meaning]}: {MEANINGS[meaning]['en']}"


@dataclass(frozen=True)
class Clip:
    """`mean`, `deviation`: float32 (3,) of the pixels in [0, 1]."""

    model: "CLIPModel"
    tokenizer: Any
    mean: np.ndarray
    deviation: np.ndarray

    @property
    def side(self) -> int:
        """Height and width of its pictures, pixels."""
        vision: Any = self.model.config.vision_config
        return int(vision.image_size)

    def pixels(self, crop: np.ndarray) -> np.ndarray | None:
        """float32 (3, side, side); None where nothing is drawn."""
        square = squared(crop, self.side)
        if square is None:
            return None
        return np.ascontiguousarray(((square / np.float32(255) - self.mean) / self.deviation).transpose(2, 0, 1))

    def tokens(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask`, int64 (texts, length), cut at the model's longest text."""
        text: Any = self.model.config.text_config
        longest = int(text.max_position_embeddings)
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        return {key: inputs[key] for key in ("input_ids", "attention_mask")}

    def embed_texts(self, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
        """float32 (texts, N), of length 1."""
        pooled = self.model.text_model(**tokens).pooler_output
        return torch.nn.functional.normalize(self.model.text_projection(pooled).float(), dim=1)

    def embed_pictures(self, pixels: torch.Tensor) -> torch.Tensor:
        """float32 (pictures, N), of length 1."""
        pooled = self.model.vision_model(pixel_values=pixels).pooler_output
        return torch.nn.functional.normalize(self.model.visual_projection(pooled).float(), dim=1)


def load(folder: Path) -> Clip:
    """Raises CheckpointError where the folder does not hold a CLIP in safetensors with its tokenizer."""
    from transformers import AutoTokenizer, CLIPModel  # seconds to import

    hide_loading_bars()
    config = _json(folder / "config.json")
    if config.get("model_type") != "clip":
        raise CheckpointError(f"{folder} holds a model of type {config.get('model_type')!r}; clip:FOLDER needs a CLIP")
    try:
        loaded: Any = CLIPModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} cannot be loaded as a CLIP in safetensors with its tokenizer: {error}"
        ) from None
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(f"{folder} lacks {len(missing)} weights of a CLIP, {missing[0]} first; download it again")
    preparation = _json(folder / "preprocessor_config.json") if (folder / "preprocessor_config.json").is_file() else {}
    mean, deviation = preparation.get("image_mean", MEAN), preparation.get("image_std", DEVIATION)
    return Clip(model, tokenizer, np.array(mean, np.float32), np.array(deviation, np.float32))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold keys and values")
    return content


class ClipIcons(IconReader):
    """Scores are the softmax over all meanings of the similarities, times the checkpoint's own scale."""

    def __init__(self, clip: Clip) -> None:
        self._clip, self._names = clip, list(MEANINGS)
        clip.model.eval()
        with torch.inference_mode():
            self._texts = clip.embed_texts(clip.tokens([description(name) for name in self._names]))
            self._scale = clip.model.logit_scale.exp()

    @classmethod
    def open(cls, folder: str) -> "ClipIcons":
        """Raises UserError without a folder, CheckpointError where it does not hold a CLIP."""
        if not folder:
            raise UserError("the icon reader clip needs a folder: clip:FOLDER")
        return cls(load(Path(folder)))

    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return guesses(crops, self._clip.pixels, self._logits, self._names)

    def _logits(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._scale * self._clip.embed_pictures(pixels) @ self._texts.T
