"""Finds the published weights in a folder of safetensors, and checks them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vlm_agent.models.qwen_vl_2023.configuration import CheckpointFormatError
from vlm_agent.models.qwen_vl_2023.published import Weight

_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
_NAMED = 5


@dataclass(frozen=True)
class Stored:
    """A weight in a file, by the file's header; `dtype` is BF16, F16 or F32."""

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * _BYTES[self.dtype]


def find_weights(source: Path, expected: dict[str, Weight]) -> list[Stored]:
    """The weights in the order of their files; only headers are read.

    Raises CheckpointFormatError, which names them, for weights that are missing, unknown, twice there or of another
    shape, and for a folder without safetensors.
    """
    found: dict[str, Stored] = {}
    wrong: list[str] = []
    for stored in _headers(source):
        wrong += _complaints(stored, expected.get(stored.name), found.get(stored.name))
        found[stored.name] = stored
    wrong += [f"{name} is missing" for name in expected if name not in found]
    if wrong:
        more = [f"… and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
        raise CheckpointFormatError(
            "\n".join(
                [f"the weights in {source} are not Qwen-VL's; is every file there, and whole?", *wrong[:_NAMED], *more]
            )
        )
    return list(found.values())


def _complaints(stored: Stored, weight: Weight | None, other: Stored | None) -> Iterator[str]:
    if weight is None:
        yield f"{stored.name} is unknown"
    elif stored.shape != weight.shape:
        yield f"{stored.name} has shape {stored.shape}, where config.json asks for {weight.shape}"
    elif stored.dtype not in _BYTES:
        yield f"{stored.name} is {stored.dtype}, not one of {', '.join(_BYTES)}"
    if other is not None:
        yield f"{stored.name} is both in {other.file.name} and in {stored.file.name}"


def _headers(source: Path) -> Iterator[Stored]:
    files = sorted(source.glob("*.safetensors"))
    if not files:
        raise CheckpointFormatError(_without_safetensors(source))
    for file in files:
        try:
            with safe_open(file, framework="pt") as content:
                slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
                yield from (Stored(name, file, tuple(at.get_shape()), at.get_dtype()) for name, at in slices.items())
        except SafetensorError as error:
            raise CheckpointFormatError(f"{file} is damaged or half a file ({error}); download it again") from None


def _without_safetensors(source: Path) -> str:
    pickles = sorted(source.glob("*.bin"))
    if not pickles:
        return f"{source} holds no *.safetensors file; give the folder that the whole checkpoint was downloaded to"
    return (
        f"{source} holds {pickles[0].name} and no *.safetensors file. A .bin file is a pickle, which may run any code "
        "when it is read, so it is not read here. Rewrite it as safetensors first: docs/qwen_vl_2023.md, under "
        '"If the weights are .bin files", has the lines'
    )
