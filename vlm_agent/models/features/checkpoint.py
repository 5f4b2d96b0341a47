"""Reads a part of a checkpoint: only its tensors, from only the files that hold them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PretrainedConfig
from transformers.utils.hub import cached_file

from vlm_agent.errors import CheckpointError
from vlm_agent.files import read_json
from vlm_agent.files.weight_files import INDEX, WEIGHTS, check_file
from vlm_agent.models.pretrained import explain_load_errors, load_configuration
from vlm_agent.recipe.model import Source


class CheckpointFiles:
    """The files of a checkpoint, a folder or a name on the hub. Only those that are used are downloaded.

    Methods raise CheckpointError for a file that is missing, damaged or cannot be downloaded.
    """

    def __init__(self, checkpoint: str) -> None:
        self._source = Source(checkpoint=checkpoint)
        self.name = checkpoint

    def configuration(self) -> PretrainedConfig:
        with explain_load_errors(self._source, "features", weights=False):
            return load_configuration(self.name, f"checkpoint {self.name!r}")

    def optional(self, name: str) -> Path | None:
        """A file, or None if the checkpoint does not have it."""
        with explain_load_errors(self._source, "features", weights=False):
            found = cached_file(self.name, name, _raise_exceptions_for_missing_entries=False)
        return None if found is None else Path(found)

    def tensors(self, prefixes: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """The tensors of a part, named without the first of `prefixes` that any name has; all tensors if none has one.

        The dtypes are those of the files.
        """
        places = self._places()
        prefix = next((one for one in prefixes if any(name.startswith(one) for name in places)), "")
        wanted = {name: file for name, file in places.items() if name.startswith(prefix)}
        return {
            name.removeprefix(prefix): tensor
            for file in sorted(set(wanted.values()))
            for name, tensor in self._read(file, {name for name in wanted if wanted[name] == file})
        }

    def _places(self) -> dict[str, str]:
        """Name of each tensor → name of its file."""
        if (index := self.optional(INDEX)) is not None:
            return read_json(index, "download the checkpoint again")["weight_map"]
        if (path := self.optional(WEIGHTS)) is None:
            raise CheckpointError(
                f"checkpoint {self.name!r} has no {WEIGHTS}. Weights are read from safetensors only; "
                f"transformers converts .bin files: AutoModel.from_pretrained({self.name!r}).save_pretrained(FOLDER)"
            )
        with self._opened(path) as file:
            return dict.fromkeys(file.keys(), WEIGHTS)

    def _read(self, name: str, wanted: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
        if (path := self.optional(name)) is None:
            raise CheckpointError(f"checkpoint {self.name!r} lacks {name}, which holds weights; download it again")
        with self._opened(path) as file:
            yield from ((key, file.get_tensor(key)) for key in sorted(wanted))

    @staticmethod
    def _opened(path: Path) -> Any:
        check_file(path)
        return safe_open(path, "pt")
