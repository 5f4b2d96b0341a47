"""From the published folder of Qwen-VL (2023) to one that `LlamaViT.from_pretrained` and `AutoTokenizer` read."""

import errno
import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from vlm_agent.files import atomic_folder, atomic_write
from vlm_agent.models.conversion import (
    BYTES,
    CheckpointFormatError,
    Converter,
    Stored,
    architectures,
    refuse,
    stored_weights,
)
from vlm_agent.models.llama_vit.model import LlamaViTConfig
from vlm_agent.models.qwen_vl_2023.published import (
    ARCHITECTURE,
    Weight,
    our_configuration,
    published_weights,
    read_configuration,
)
from vlm_agent.models.qwen_vl_2023.tokenizer import END, VOCABULARY_FILE, build_tokenizer

SHARD_BYTES = 2 << 30
"""The approximate limit of a file, and of the memory that conversion needs."""

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def convert_checkpoint(
    source: Path, target: Path, say: Callable[[str], None], shard_bytes: int = SHARD_BYTES
) -> LlamaViTConfig:
    """Writes `target`, a new folder, from the published folder `source`; weights keep their dtype.

    All input is checked before the first write, and `target` is renamed into place when complete. `say` is called with
    the name of every file. Raises CheckpointFormatError unless `source` is the whole published checkpoint,
    FileExistsError if `target` exists, FileNotFoundError if `source` lacks a file.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, "exists already; name a folder that does not", str(target))
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
    with atomic_folder(target) as folder:
        _write_weights(stored, expected, folder, shard_bytes, say)
        tokenizer.save_pretrained(folder)
        config.save_pretrained(folder)
    return config


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


def _write_weights(
    stored: list[Stored], expected: dict[str, Weight], folder: Path, shard_bytes: int, say: Callable[[str], None]
) -> None:
    shards = _deal(stored, shard_bytes)
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = _converted(shard, expected)
        with atomic_write(folder / name) as temporary:
            save_file(tensors, temporary, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, name)
        say(name)
    index = {"metadata": {"total_size": sum(weight.size for weight in stored)}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def _deal(stored: list[Stored], shard_bytes: int) -> list[list[Stored]]:
    """Shards in order, each as full as fits; a larger weight has its own."""
    shards: list[list[Stored]] = []
    room = 0
    for weight in stored:
        if not shards or weight.size > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(weight)
        room -= weight.size
    return shards


def _converted(shard: list[Stored], expected: dict[str, Weight]) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file, inside in groupby(shard, key=lambda stored: stored.file):
        with safe_open(file, framework="pt") as content:
            for stored in inside:
                weight = expected[stored.name]
                tensors |= zip(weight.targets, weight.convert(content.get_tensor(stored.name)), strict=True)
    return tensors


class QwenVL2023Converter(Converter):
    name = "Qwen-VL (2023)"
    recipe_key = "model.vlm.checkpoint"

    def recognises(self, folder: Path) -> bool:
        return ARCHITECTURE in architectures(folder)

    def convert(self, source: Path, target: Path, say: Callable[[str], None]) -> None:
        convert_checkpoint(source, target, lambda name: say(f"Wrote {name}"))


QWEN_VL_2023 = QwenVL2023Converter()
