"""Methods (a) and (b): batches padded to their longest sentence, logits at all positions, loss of transformers."""

import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from benchmarks.training.sentences import cut_into_steps
from benchmarks.training.shapes import Shape
from vlm_agent.models.family import Processor
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.qwen_vl.model import IMAGE_MEAN, IMAGE_STD
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence


def one_sample_a_step(sentences: Sequence[Sentence], batch: int) -> Iterator[list[Sentence]]:
    """Every action its own sample, shuffled, `batch` of them at a time."""
    samples = [sample for sentence in sentences for sample in cut_into_steps(sentence)]
    random.Random(0).shuffle(samples)
    for start in range(0, len(samples), batch):
        yield samples[start : start + batch]


def whole_trajectories(sentences: Sequence[Sentence], batch: int) -> Iterator[list[Sentence]]:
    for start in range(0, len(sentences), batch):
        yield list(sentences[start : start + batch])


def model_class(shape: Shape) -> None:
    """transformers' own."""


def collate(sentences: Sequence[Sentence], processor: Processor, special: dict[str, int]) -> dict[str, torch.Tensor]:
    """Padded on the right, with an attention mask, as transformers' collators do it."""
    longest = max(map(len, sentences))
    batch = {
        "input_ids": _padded([sentence.input_ids for sentence in sentences], longest, 0),
        "attention_mask": _padded([[1] * len(sentence) for sentence in sentences], longest, 0),
        "labels": _padded([sentence.labels for sentence in sentences], longest, IGNORED),
    }
    screens = torch.from_numpy(np.stack([screen for sentence in sentences for screen in sentence.screens]))
    if not hasattr(processor.screens, "multiple"):
        return batch | {"screens": screens}
    is_screen = batch["input_ids"] == SCREEN_TOKEN
    batch["input_ids"] = batch["input_ids"].masked_fill(is_screen, special["image_token_id"])
    grid = torch.tensor([[1, screens.shape[2] // 14, screens.shape[3] // 14]])
    return batch | {
        "mm_token_type_ids": is_screen.long(),
        "pixel_values": qwen_patches(screens),
        "image_grid_thw": grid.repeat(len(screens), 1),
    }


def qwen_patches(screens: torch.Tensor) -> torch.Tensor:
    """uint8 (N, 3, height, width) to float32 (N * patches, 3 * 2 * 14 * 14), as transformers' image processor."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGE_MEAN, IMAGE_STD))
    pixels = (screens / 255 - mean) / std
    count, _, height, width = screens.shape
    squares = pixels.view(count, 3, height // 28, 2, 14, width // 28, 2, 14).permute(0, 2, 5, 3, 6, 1, 4, 7)
    twice = squares.unsqueeze(6).expand(*squares.shape[:6], 2, 14, 14)  # a picture is a film of two equal frames
    return twice.reshape(-1, 3 * 2 * 14 * 14)


def loss(model, batch: dict[str, torch.Tensor], items: int) -> torch.Tensor:
    """This batch's share of the mean over `items` supervised tokens, as transformers' models compute it."""
    return model(**batch, num_items_in_batch=items, use_cache=False).loss


def prepare(model) -> None:
    """Gives Llama+ViT the forward that transformers' Llama has with labels, behind the same eyes and the same LoRA.

    transformers' Qwen2.5-VL has it.
    """
    base = model.get_base_model()
    if not isinstance(base, LlamaViT):
        return

    def forward(input_ids, screens, **inputs):
        embeddings, _ = base.embed(input_ids, screens)
        return base.language_model(inputs_embeds=embeddings, **inputs)

    base.forward = forward


def _padded(rows: Sequence[Sequence[int]], length: int, padding: int) -> torch.Tensor:
    return torch.tensor([[*row, *[padding] * (length - len(row))] for row in rows])
