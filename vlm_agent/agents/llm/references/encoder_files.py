"""The configuration of a sentence encoder's folder, checked before it is loaded.

transformers reads neither `modules.json` nor the folders of modules, and JSON of another shape is a traceback there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from vlm_agent.errors import UserError
from vlm_agent.files import read_checked

REMEDY = "download the encoder again"

_POOLING = "1_Pooling"
_COMPUTED = {"Transformer", "Pooling", "Normalize"}
"""Modules of sentence-transformers that `SentenceEncoder` computes."""

_MODULE_FOLDER = re.compile(r"\d+_(\w+)")


class EncoderError(UserError):
    """A sentence encoder that cannot be used; the message names it."""


@dataclass
class _Config:
    model_type: str


@dataclass
class _Tokenizer:
    model: dict[str, Any]
    added_tokens: list[dict[str, Any]]


@dataclass
class _Module:
    """`type`: dotted name of a class. `path`: its folder; empty for the encoder's own."""

    type: str
    path: str


@dataclass
class _Limit:
    max_seq_length: int | None = None


_KINDS: dict[str, Any] = {
    "config.json": _Config,
    "special_tokens_map.json": dict[str, Any],
    "tokenizer.json": _Tokenizer,
    "tokenizer_config.json": dict[str, Any],
}


def check_files(folder: Path) -> None:
    """Raises UserError naming the file if one is damaged, and EncoderError for an encoder that does not average its
    tokens, or has a module that is not computed here, such as Dense."""
    for name, kind in _KINDS.items():
        _read(folder / name, kind)
    _check_tokenizer(folder / "tokenizer.json")
    _check_modules(folder)


def own_limit(folder: Path) -> int | None:
    """The maximum number of tokens in the encoder's own configuration, as in sentence-transformers."""
    content = _read(folder / "sentence_bert_config.json", _Limit)
    return None if content is None else content.get("max_seq_length")


def _read(path: Path, kind: Any) -> Any:
    """None for a file that does not exist."""
    return read_checked(path, REMEDY, kind) if path.is_file() else None


def _check_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer

    if not path.is_file():
        return
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 (the library raises no narrower class)
        raise EncoderError(f"{path} is damaged ({str(error).partition(chr(10))[0]}); {REMEDY}") from None


def _check_modules(folder: Path) -> None:
    """The modules in `modules.json`; folders named like modules count as well, because a copy may lack that file."""
    listed = _read(folder / "modules.json", Annotated[list[_Module], Field(min_length=1)]) or []
    modules = [(module["path"], module["type"].rpartition(".")[2]) for module in listed]
    known = {path for path, _ in modules}
    folders = [path.name for path in sorted(folder.iterdir()) if path.is_dir() and path.name not in known]
    modules += [(name, match[1]) for name in folders if (match := _MODULE_FOLDER.fullmatch(name))]
    for place, name in modules:
        if name not in _COMPUTED:
            raise EncoderError(
                f"encoder {folder} has the module {name} ({place}), whose result would be missing; only "
                f"{', '.join(sorted(_COMPUTED))} are computed here, so choose another encoder"
            )
    pooling = [path for path, name in modules if name == "Pooling"]
    _check_pooling(folder / (pooling[0] if pooling else _POOLING) / "config.json", folder, bool(pooling))


def _check_pooling(path: Path, folder: Path, is_needed: bool) -> None:
    if not is_needed and not path.is_file():
        return
    content = read_checked(path, REMEDY, dict[str, Any])
    modes = {key.removeprefix("pooling_mode_"): on for key, on in content.items() if key.startswith("pooling_mode_")}
    if not modes or any(not isinstance(on, bool) for on in modes.values()):
        raise EncoderError(f"{path} is damaged (it has no pooling modes that are true or false); {REMEDY}")
    chosen = [mode for mode, on in modes.items() if on]
    if chosen not in (["mean_tokens"], ["mean"]):
        raise EncoderError(
            f"encoder {folder} pools by {', '.join(chosen) or 'nothing'}; only the mean of tokens is known"
        )
