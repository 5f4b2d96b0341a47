"""The weights in a folder of safetensors, by the headers of its files."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from vlm_agent.errors import UserError
from vlm_agent.files.installation import DOCS
from vlm_agent.files.weight_files import check_file, check_folder

BYTES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes of a number, by the dtypes that are read."""

_NAMED = 5


class CheckpointFormatError(UserError):
    """A folder that is not the published checkpoint, or not all of it, with what to do."""


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
        return math.prod(self.shape) * BYTES[self.dtype]


def refuse(source: Path, name: str, wrong: Sequence[str]) -> None:
    """Raises CheckpointFormatError if any weight is `wrong`; the first of them are listed. `name`: of the model, with
    an apostrophe s."""
    if wrong:
        more = [f"… and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
        raise CheckpointFormatError(
            "\n".join(
                [f"the weights in {source} are not {name}; is every file there, and whole?", *wrong[:_NAMED], *more]
            )
        )


def stored_weights(source: Path) -> Iterator[Stored]:
    """In the order of the files; only headers are read.

    Raises CheckpointFormatError for a folder without safetensors, CheckpointError for a damaged file.
    """
    check_folder(source)
    files = sorted(source.glob("*.safetensors"))
    if not files:
        raise CheckpointFormatError(_without_safetensors(source))
    for file in files:
        check_file(file)
        with safe_open(file, framework="pt") as content:
            slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
            yield from (Stored(name, file, tuple(at.get_shape()), at.get_dtype()) for name, at in slices.items())


def _without_safetensors(source: Path) -> str:
    pickles = sorted(source.glob("*.bin"))
    if not pickles:
        return f"{source} holds no *.safetensors file; give the folder that the whole checkpoint was downloaded to"
    return (
        f"{source} holds {pickles[0].name} and no *.safetensors file. A .bin file is a pickle, which may run any code "
        "when it is read, so it is not read here. Rewrite it as safetensors first: "
        f"{DOCS / 'qwen_vl_2023.md'}, under "
        '"If the weights are .bin files", has the lines'
    )
