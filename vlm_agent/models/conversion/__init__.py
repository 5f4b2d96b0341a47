"""Published checkpoints that transformers does not know: which model a folder holds, and its conversion.

A converter is a module:object in `CONVERTERS`; it is imported when a folder is looked at.
"""

import json
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from vlm_agent.models.conversion.source_files import CheckpointFormatError


class Converter(Protocol):
    """From a published folder to one that a family's `from_pretrained` and `AutoTokenizer` read.

    `recipe_key`: the key of a recipe that takes the result.
    """

    name: str
    recipe_key: str

    def recognises(self, folder: Path) -> bool:
        """Whether the folder holds this model, perhaps incomplete or damaged."""
        ...

    def convert(self, source: Path, target: Path, say: Callable[[str], None]) -> None:
        """Writes `target`, a new folder, from `source`; `say` is called with each line for the user.

        All input is checked before the first write, and `target` is renamed into place when complete. Raises
        CheckpointFormatError unless `source` is a whole checkpoint, FileExistsError if `target` exists,
        FileNotFoundError if `source` lacks a file.
        """
        ...


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


def read_config(folder: Path) -> dict:
    """The keys of config.json. Raises CheckpointFormatError unless it is a JSON object."""
    path = folder / "config.json"
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointFormatError(f"{path} is not JSON ({error}); download it again") from None
    if not isinstance(content, dict):
        raise CheckpointFormatError(f"{path} is no JSON object; download it again")
    return content


def architectures(folder: Path) -> list[str]:
    """The names of the model's classes by config.json. Raises what `read_config` raises."""
    names = read_config(folder).get("architectures")
    return names if isinstance(names, list) else []
