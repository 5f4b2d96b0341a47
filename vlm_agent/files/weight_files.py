"""Checks the files of a checkpoint before a library loads it: the first bytes, the headers and the sizes.

Damage that a download, a copy or a clone without git-lfs leaves is then one line that names the file, also in a dry
run: no weights are read.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from vlm_agent.errors import CheckpointError
from vlm_agent.files import version_of

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER = "adapter_model.safetensors"
_DESCRIPTIONS = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "chat_template.json"),
)
"""JSON objects that a library reads beside weights."""

_VOCABULARIES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "vocab.txt", "merges.txt")
_AGAIN = "download or copy it again"
_POINTER = b"version https://git-lfs.github.com/"
_SIZE = re.compile(rb"^size (\d+)$", re.MULTILINE)
_PAGES = (b"<!doctype", b"<html")
_NUMBER = 8
"""Bytes of the length of a header."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a library loads from a folder: the one file, else those of the index; and an adapter.

    Raises CheckpointError for an index that is damaged or names a missing file.
    """
    whole, index = folder / WEIGHTS, folder / INDEX
    files = [whole] if whole.exists() else sorted(set(_places(index).values())) if index.exists() else []
    return files + ([folder / _ADAPTER] if (folder / _ADAPTER).exists() else [])


def check_folder(folder: Path, weights: bool = True) -> None:
    """Raises CheckpointError, one line, for the first file of a checkpoint that is damaged: a pointer of git-lfs,
    empty, cut, no JSON or no safetensors, or an index that names a file or weight that is not there.

    `weights`: false checks what describes the model and its tokenizer alone.
    """
    for name in (*_DESCRIPTIONS, *_VOCABULARIES):
        if (folder / name).exists():
            check_file(folder / name)
    if not weights:
        return
    for path in weight_files(folder):
        check_file(path)
    if not (folder / WEIGHTS).exists() and (folder / INDEX).exists():
        _check_index(folder / INDEX)


def check_file(path: Path) -> None:
    """Raises CheckpointError, one line that names the file, where the file of a checkpoint is damaged."""
    if (problem := _problem_of(path, version_of(path))) is not None:
        raise CheckpointError(f"{path} {problem}")


def json_object(path: Path) -> dict[str, Any]:
    """The keys of a .json file of a checkpoint. Raises what `check_file` raises."""
    check_file(path)
    return json.loads(path.read_bytes())


def refuse_missing_folder(location: str, where: str) -> None:
    """Raises CheckpointError for the path of a folder that does not exist, which a library would take for a name on
    the hub. `where`: the recipe key or option of it."""
    if is_path(location) and not Path(location).is_dir():
        kind = "is a file, not a folder" if Path(location).exists() else "does not exist"
        raise CheckpointError(
            f"{where} cannot be loaded: the folder {location} {kind}; give the path of a folder that holds it"
        )


def is_path(location: str) -> bool:
    """Whether a checkpoint can only be a folder: a name on the hub is NAME or OWNER/NAME."""
    return location.startswith(("/", ".", "~")) or location.count("/") > 1 or location.endswith("/")


def digest_of(tensors: Mapping[str, Any], notes: Mapping[str, Any]) -> str:
    """A SHA-256 of `tensors`, of torch on the CPU, and of `notes`, JSON-like; for the metadata of their file."""
    digest = hashlib.sha256(json.dumps(dict(notes), sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def check_digest(
    path: Path, tensors: Mapping[str, Any], notes: Mapping[str, Any], recorded: object, shipped: str
) -> None:
    """Raises CheckpointError where the content of a file differs from the `recorded` digest of its metadata. Weights of
    the package may have none: `shipped` is the SHA-256 of their file."""
    if recorded is None and hashlib.sha256(path.read_bytes()).hexdigest() == shipped:
        return
    if recorded != digest_of(tensors, notes):
        raise CheckpointError(
            f"{path} differs from its SHA-256, or has none: it is damaged; restore it from a copy, or train it again"
        )


@cache
def _problem_of(path: Path, version: tuple[int, ...]) -> str | None:
    """What is wrong with a file of a checkpoint, and what to do, as the end of a sentence; None if nothing is."""
    size = version[1]
    with path.open("rb") as file:
        head = file.read(1024)
    if not head:
        return f"is empty; {_AGAIN}"
    if head.startswith(_POINTER):
        length = _SIZE.search(head)
        of = "" if length is None else f" of {int(length[1]):,} bytes"
        return f"is a pointer of git-lfs, not the file{of}: run `git lfs pull` in {path.parent}, or {_AGAIN}"
    if head.lstrip().lower().startswith(_PAGES):
        return f"is a web page, not a file of a checkpoint; {_AGAIN}"
    if path.suffix == ".safetensors":
        return _problem_of_safetensors(path, head, size)
    if path.suffix != ".json":
        return None
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        return f"is damaged or cut: it is not JSON ({error}); {_AGAIN}"
    return None if isinstance(content, dict) else f"is damaged: it is not a JSON object; {_AGAIN}"


def _problem_of_safetensors(path: Path, head: bytes, size: int) -> str | None:
    length = int.from_bytes(head[:_NUMBER], "little")
    if size <= _NUMBER or (head[_NUMBER : _NUMBER + 1] == b"{" and length > size - _NUMBER):
        return f"is cut: it has {size:,} bytes, less than its header; {_AGAIN}"
    try:
        with safe_open(path, "np"):
            return None
    except (SafetensorError, OSError) as error:
        wanted = _wanted(path, length) if length <= size else None
        if wanted is not None and wanted > size:
            return f"is cut: it has {size:,} of {wanted:,} bytes; {_AGAIN}"
        return f"is damaged, or no safetensors ({error}); {_AGAIN}"


def _wanted(path: Path, length: int) -> int | None:
    """The bytes of the whole file by its header of `length` bytes; None where that is damaged."""
    with path.open("rb") as file:
        file.seek(_NUMBER)
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            return _NUMBER + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None


def weight_map(index: Path) -> dict[str, str]:
    """Weight → name of its file. Raises CheckpointError for an index that is damaged."""
    content = json_object(index).get("weight_map")
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{index} is damaged: its weight_map is no list of weights and files; {_AGAIN}")
    for name in dict.fromkeys(map(str, content.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} is damaged: it names the file {name!r}; {_AGAIN}")
    return {weight: str(name) for weight, name in content.items()}


def _places(index: Path) -> dict[str, Path]:
    """Weight → file of an index, all of them present."""
    content = weight_map(index)
    for name in dict.fromkeys(content.values()):
        if not (index.parent / name).exists():
            raise CheckpointError(
                f"{index.parent} is incomplete: {name}, which {index.name} names, is missing; download it again"
            )
    return {weight: index.parent / name for weight, name in content.items()}


def _check_index(index: Path) -> None:
    places = _places(index)
    for path in sorted(set(places.values())):
        with safe_open(path, "np") as file:
            held = set(file.keys())
        absent = [weight for weight, place in places.items() if place == path and weight not in held]
        if absent:
            raise CheckpointError(
                f"{path} lacks {len(absent)} weight(s) that {index.name} names, {absent[0]} first: they are not of one "
                f"download; {_AGAIN}"
            )
