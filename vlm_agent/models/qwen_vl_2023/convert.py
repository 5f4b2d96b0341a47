"""From the published folder of Qwen-VL (2023) to one that `LlamaViT.from_pretrained` and `AutoTokenizer` read."""

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import cast

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open

from vlm_agent.models.conversion import (
    BYTES,
    CheckpointFormatError,
    Converter,
    Stored,
    architectures,
    refuse,
    stored_weights,
)
from vlm_agent.models.qwen_vl_2023.published import (
    ARCHITECTURE,
    Weight,
    our_configuration,
    published_weights,
    read_configuration,
)
from vlm_agent.models.qwen_vl_2023.tokenizer import END, VOCABULARY_FILE, build_tokenizer

SHARD_BYTES = 2 << 30
"""The most of a file."""

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def read(source: Path) -> Callable[[Path, Callable[[str], None]], None]:
    """See `Converter.read`; weights keep their dtype."""
    published = read_configuration(source / "config.json")
    expected = published_weights(published)
    stored = find_weights(source, expected)
    tokenizer = build_tokenizer(source / VOCABULARY_FILE, published.max_position_embeddings)
    if len(tokenizer) > published.vocab_size:
        raise CheckpointFormatError(
            f"{source / VOCABULARY_FILE} makes {len(tokenizer)} ids with the special tokens, more than config.json's "
            f"{published.vocab_size} embeddings: they are not of one checkpoint"
        )
    config = our_configuration(published, cast("int", tokenizer.convert_tokens_to_ids(END)), _DTYPES[stored[0].dtype])

    def write(folder: Path, say: Callable[[str], None]) -> None:
        save_torch_state_dict(_converted(stored, expected), folder, max_shard_size=SHARD_BYTES)
        for file in sorted(folder.glob("*.safetensors")):
            say(f"Wrote {file.name}")
        tokenizer.save_pretrained(folder)
        config.save_pretrained(folder)

    return write


def find_weights(source: Path, expected: dict[str, Weight]) -> list[Stored]:
    """The weights in the order of their files; only headers are read.

    Raises CheckpointFormatError, which names them, for weights that are missing, unknown, twice there or of another
    shape, and for a folder without safetensors.
    """
    found: dict[str, Stored] = {}
    wrong: list[str] = []
    for stored in stored_weights(source):
        wrong += _complaints(stored, expected.get(stored.name), found.get(stored.name))
        found[stored.name] = stored
    wrong += [f"{name} is missing" for name in expected if name not in found]
    refuse(source, "Qwen-VL's", wrong)
    return list(found.values())


def _complaints(stored: Stored, weight: Weight | None, other: Stored | None) -> Iterator[str]:
    if weight is None:
        yield f"{stored.name} is unknown"
    elif stored.shape != weight.shape:
        yield f"{stored.name} has shape {stored.shape}, where config.json asks for {weight.shape}"
    elif stored.dtype not in BYTES:
        yield f"{stored.name} is {stored.dtype}, not one of {', '.join(BYTES)}"
    if other is not None:
        yield f"{stored.name} is both in {other.file.name} and in {stored.file.name}"


def _converted(stored: list[Stored], expected: dict[str, Weight]) -> dict[str, torch.Tensor]:
    """Our weights by name. What is not rearranged is mapped from its file, and takes no memory."""
    tensors: dict[str, torch.Tensor] = {}
    for file, inside in groupby(stored, key=lambda one: one.file):
        with safe_open(file, framework="pt") as content:
            for one in inside:
                weight = expected[one.name]
                tensors |= zip(weight.targets, weight.convert(content.get_tensor(one.name)), strict=True)
    return tensors


QWEN_VL_2023 = Converter(
    "Qwen-VL (2023)", "model.vlm.checkpoint", lambda folder: ARCHITECTURE in architectures(folder), read
)
