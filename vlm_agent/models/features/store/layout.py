"""Names and checks of the files in a folder of features."""

import zlib
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset, manifest_digest
from vlm_agent.errors import DatasetError, remedy_of_missing
from vlm_agent.files import sha256_of
from vlm_agent.files.checked_json import read_checked
from vlm_agent.recipe.model import FeatureSettings

VERSION = 1
DTYPE = "float16"
DIGEST_SIZE = 16
SUM_SIZE = 4
FORMS: tuple[str, ...] = get_args(FeatureSettings.model_fields["form"].annotation)
REMEDY = "move it away and run the same `vlm-agent features` again to restore it"


@dataclass(frozen=True)
class FeatureFile:
    """The features of one shard. `shard`: its path in the folder of shards. `steps`: the number of its steps.
    `sums_sha256`: digest of the file of checksums."""

    shard: str
    steps: int
    sha256: str
    pixels_sha256: str
    sums_sha256: str

    def content(self) -> dict:
        """The file as an entry of the manifest."""
        return {"shard": self.shard, "features": features_name(self.shard), "pixels": pixels_name(self.shard)} | {
            key: value for key, value in asdict(self).items() if key != "shard"
        }

    @classmethod
    def read(cls, content: dict) -> "FeatureFile":
        return cls(**{field.name: content[field.name] for field in fields(cls)})


def features_name(shard: str) -> str:
    """The path of a shard's features in the folder."""
    return str(PurePosixPath(shard).with_suffix(".npy"))


def pixels_name(shard: str) -> str:
    """The path of the digests of a shard's pixels in the folder."""
    return str(PurePosixPath(shard).with_suffix(".pixels.npy"))


def sums_name(shard: str) -> str:
    """The path of the checksums of a shard's features in the folder."""
    return str(PurePosixPath(shard).with_suffix(".sums.npy"))


def row_sum(row: np.ndarray) -> int:
    """The CRC-32 of the features of a step: (T, D)."""
    return zlib.crc32(np.ascontiguousarray(row).data.cast("B"))


def shards_digest(dataset: ShardDataset) -> str:
    """The digest of the manifest of a folder of shards, which has the sha256 of each source file."""
    return manifest_digest(dataset.directory)


def read_feature_manifest(folder: Path) -> dict:
    """The manifest of a complete folder. Raises DatasetError where it is missing, damaged or of another version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DatasetError(
            f"{folder} has no {MANIFEST}: it is not a folder of features, or its extraction is incomplete; run the "
            "same `vlm-agent features` again to resume"
        )
    manifest = read_checked(path, "move it away and run the same `vlm-agent features` again to restore it")
    try:
        version = checked(manifest, "features_version", int)
        if version == VERSION:
            _check_manifest(manifest)
    except ValueError as error:
        raise DatasetError(
            f"{path} is not a manifest of features: {error}; choose the output of `vlm-agent features`"
        ) from None
    if version != VERSION:
        raise DatasetError(
            f"{path} has features_version {version}, this program reads {VERSION}; run `vlm-agent features` again into "
            "another folder"
        )
    return manifest


def _check_manifest(manifest: dict) -> None:
    """Raises ValueError, which names the key, for a missing key or a value of another type."""
    check_extractor(manifest, "extractor")
    for key in ("tokens", "size"):
        checked(manifest, key, int)
    checked(manifest, "shards.manifest_sha256", str)
    for number, entry in enumerate(checked(manifest, "files", list)):
        for key, kind in get_type_hints(FeatureFile).items():
            checked({f"files[{number}]": entry}, f"files[{number}].{key}", kind)


def check_extractor(content: Any, key: str) -> None:
    """`_check_manifest` of the extractor at a dotted key."""
    checked(content, f"{key}.extractor", str)
    checked(content, f"{key}.checkpoint", (str, NoneType))
    checked(content, f"{key}.digest", str)
    form = checked(content, f"{key}.form", str)
    if form not in FORMS:
        raise ValueError(f"{key}.form is {form!r}, not one of {', '.join(FORMS)}")


def checked(content: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    """The value at a dotted key. Raises ValueError, which names the key, if it is missing or of another type."""
    value = content
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"{key} is missing")
        value = value[name]
    if not isinstance(value, kind):
        raise ValueError(f"{key} is {value!r}")
    return value


def open_array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped array of this dtype and shape. Raises DatasetError for a file that is missing, cut short or
    holds another array."""
    try:
        stat = path.stat()
        array = _mapped(path, stat.st_size, stat.st_mtime_ns)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; {remedy_of_missing(REMEDY)}") from None
    except _DAMAGED_HEADER as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"{path} is damaged ({reason}); {REMEDY}") from None
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        raise DatasetError(f"{path} holds {array.dtype} {array.shape}, and {dtype} {shape} is expected; {REMEDY}")
    return array


def check_digest(path: Path, sha256: str) -> None:
    """Reads the whole file. Raises DatasetError where it has another SHA-256."""
    if sha256_of([path]) != sha256:
        raise DatasetError(f"{path} is damaged (its SHA-256 differs from the manifest's); {REMEDY}")


_DAMAGED_HEADER = (ValueError, EOFError, TypeError, OverflowError, SyntaxError, TokenError, MemoryError)
"""NumPy's errors for a header that it cannot parse, or an array that the file cannot hold."""


@lru_cache(maxsize=128)
def _mapped(path: Path, size: int, mtime_ns: int) -> np.ndarray:
    """Cached, so that a step does not parse the header again. Few, because each mapping keeps a file descriptor, as
    does every array that still refers to one. A fork may use it."""
    return np.lib.format.open_memmap(path, mode="r")
