"""Published checkpoints that transformers does not know: which model a folder holds, its weights, and their conversion.

A converter is a module:object in `CONVERTERS`; it is imported when a folder is looked at.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from pkgutil import resolve_name

import torch
from safetensors import safe_open

from vlm_agent.errors import UserError
from vlm_agent.files import atomic_folder
from vlm_agent.files.weight_files import check_file, check_folder, json_object

_NAMED = 5
_PICKLE = ".bin"
_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
"""The names of safetensors."""
_UNREADABLE = (UnpicklingError, RuntimeError, ValueError, TypeError, LookupError, OSError, EOFError, AttributeError)
"""What torch.load raises for a damaged or foreign file."""


class CheckpointFormatError(UserError):
    """A folder that is not the published checkpoint, or not all of it, with what to do."""


@dataclass(frozen=True)
class Converter:
    """From a published folder to one that a family's `from_pretrained` and `AutoTokenizer` read.

    `recipe_key`: the key of a recipe that takes the result. `recognises`: whether a folder holds this model, perhaps
    incomplete or damaged. `read`: checks all input in a source, and returns what writes the result to a folder and
    calls a function with each line for the user.
    """

    name: str
    recipe_key: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], Callable[[Path, Callable[[str], None]], None]]

    def convert(self, source: Path, target: Path, say: Callable[[str], None]) -> None:
        """Writes `target`, a new folder, from `source`; it is renamed into place when complete. `say` is called with
        each line for the user.

        Raises CheckpointFormatError unless `source` is a whole checkpoint, FileExistsError if `target` exists,
        FileNotFoundError if `source` lacks a file.
        """
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists already; name a folder that does not", str(target))
        write = self.read(source)
        with atomic_folder(target) as folder:
            write(folder, say)


CONVERTERS = {
    "qwen_vl_2023": "vlm_agent.models.qwen_vl_2023.convert:QWEN_VL_2023",
    "auto_ui": "vlm_agent.models.auto_ui.convert:AUTO_UI",
}
"""Name → module:object."""


def converter_of(folder: Path) -> Converter:
    """Raises CheckpointFormatError for a folder that no converter recognises, FileNotFoundError without config.json."""
    converters: list[Converter] = [resolve_name(path) for path in CONVERTERS.values()]
    for converter in converters:
        if converter.recognises(folder):
            return converter
    raise CheckpointFormatError(
        f"{folder} is none of the checkpoints that are converted ({', '.join(one.name for one in converters)}); "
        "what transformers supports needs no conversion"
    )


def architectures(folder: Path) -> list[str]:
    """The names of the model's classes by config.json. Raises CheckpointError unless it is a JSON object."""
    names = json_object(folder / "config.json").get("architectures")
    return names if isinstance(names, list) else []


@dataclass(frozen=True)
class Stored:
    """A weight in a file, by the file's header; `dtype` as safetensors names it, such as BF16."""

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str


def refuse(source: Path, name: str, wrong: Sequence[str]) -> None:
    """Raises CheckpointFormatError if any weight is `wrong`; the first of them are listed. `name`: of the model, with
    an apostrophe s."""
    if wrong:
        more = [f"… and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
        first = f"the weights in {source} are not {name}; is every file there, and whole?"
        raise CheckpointFormatError("\n".join([first, *wrong[:_NAMED], *more]))


def stored_weights(source: Path) -> Iterator[Stored]:
    """In the order of the files; only headers are read. Without safetensors, those of `pytorch_model*.bin`.

    Raises CheckpointFormatError for a folder without weights and for a .bin file that holds anything beside tensors,
    CheckpointError for a damaged file.
    """
    check_folder(source)
    files = sorted(source.glob("*.safetensors")) or sorted(source.glob("pytorch_model*.bin"))
    if not files:
        raise CheckpointFormatError(
            f"{source} holds neither *.safetensors nor pytorch_model*.bin; give the folder that the whole checkpoint "
            "was downloaded to"
        )
    for file in files:
        if file.suffix == _PICKLE:
            for name, at in _mapped(file).items():
                yield Stored(name, file, tuple(at.shape), _DTYPES.get(at.dtype, str(at.dtype)))
            continue
        check_file(file)
        with safe_open(file, framework="pt") as content:
            slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
            yield from (Stored(name, file, tuple(at.get_shape()), at.get_dtype()) for name, at in slices.items())


def tensors_of(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of a file that `stored_weights` found, in its dtype; mapped from the file, so without memory.

    Raises CheckpointFormatError for a .bin file that holds anything beside tensors.
    """
    if file.suffix == _PICKLE:
        yield from ((name, tensor.contiguous()) for name, tensor in _mapped(file).items())
        return
    with safe_open(file, framework="pt") as content:
        yield from ((name, content.get_tensor(name)) for name in content.keys())  # noqa: SIM118 (no mapping)


def _mapped(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a .bin file, a pickle. `weights_only` builds tensors and containers, and calls no other code."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except _UNREADABLE as error:
        raise CheckpointFormatError(
            f"{file} cannot be read as tensors alone ({type(error).__name__}); download it again, or take a "
            "checkpoint in safetensors"
        ) from None
    if not isinstance(content, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise CheckpointFormatError(f"{file} holds no table of tensors by name; take a checkpoint in safetensors")
    return content
