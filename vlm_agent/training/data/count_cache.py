"""A cache of token counts on disk: a run that starts again does not tokenise its data again.

    CACHE/token_counts/KEY.npz    CACHE: $VLM_AGENT_CACHE, else $XDG_CACHE_HOME/vlm-agent, else ~/.cache/vlm-agent

KEY is a digest of everything that decides the counts: the tokenizer, the chat template, the action language, and the
goals and actions themselves, or the elements of screens that a text model reads; other screens are counted by
arithmetic. So a file never becomes outdated by other data. It may by other code, and a sample of every file is counted
again when it is read. Any file may be removed at any time.

Of several processes that start together, such as the ranks of a run, one counts and the others wait for its file.
"""

import hashlib
import json
import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write, file_lock
from vlm_agent.training.data.text_lengths import TextLengths, TokenizedTexts

_LOG = logging.getLogger(__name__)
_VERSION = 1
_SAMPLE = 64
_PATIENCE_SECONDS = 1800.0


def cache_folder() -> Path:
    """The folder of everything that this package keeps between commands and can make again."""
    if own := os.environ.get("VLM_AGENT_CACHE"):
        return Path(own)
    of_user = os.environ.get("XDG_CACHE_HOME")
    return (Path(of_user) if of_user else Path.home() / ".cache") / "vlm-agent"


@dataclass(frozen=True)
class CountCache:
    """`language`: the settings of the action language, as JSON. Fewer than `least` texts are counted without a file."""

    folder: Path
    language: dict[str, Any]
    least: int = 20_000

    def lengths(
        self,
        sentences: TokenizedTexts,
        content: bytes,
        count: int,
        measure: Callable[[Sequence[int]], TextLengths],
    ) -> TextLengths:
        """The lengths of `count` texts, from a file or by `measure`, which takes numbers of texts.

        `content`: a digest of what the texts are written from.
        """
        every = range(count)
        if count < self.least or not hasattr(sentences.tokenizer, "backend_tokenizer"):
            return measure(every)
        path = self.folder / "token_counts" / f"{self._key(sentences, content)}.npz"
        if (found := _read(path, count, measure)) is not None:
            return found
        with ExitStack() as stack:
            try:
                stack.enter_context(_alone(path.with_suffix(".lock")))
                if (found := _read(path, count, measure)) is not None:
                    return found
            except OSError as error:
                _warn_unwritable(path, error)
                return measure(every)
            found = measure(every)
            _write(path, found)
            return found

    def _key(self, sentences: TokenizedTexts, content: bytes) -> str:
        template = getattr(sentences, "template", None)  # sentences of single steps have none
        decisive = [_VERSION, self.language, *([] if template is None else [astuple(template)])]
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
        digest.update(_tokenizer_digest(sentences.tokenizer))
        digest.update(content)
        return digest.hexdigest()[:32]


def _tokenizer_digest(tokenizer: Any) -> bytes:
    content = tokenizer.backend_tokenizer.to_str()
    # Padding and truncation, which come before, are set by calls.
    at = max(content.find('"added_tokens"'), 0)
    return hashlib.sha256(f"{type(tokenizer).__qualname__} {content[at:]}".encode()).digest()


def _read(path: Path, count: int, measure: Callable[[Sequence[int]], TextLengths]) -> TextLengths | None:
    """None without a file, or with a message if it is damaged or outdated."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = TextLengths(file["tokens"], file["is_writable"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        return _refuse(path, f"is damaged ({error})")
    if (found.tokens.shape, found.is_writable.shape) != ((count,), (count,)):
        return _refuse(path, "has another number of texts than the data")
    sample = np.linspace(0, count - 1, min(_SAMPLE, count)).astype(np.int64)
    again = measure(sample.tolist())
    same = (again.tokens == found.tokens[sample]) & (again.is_writable == found.is_writable[sample])
    return found if same.all() else _refuse(path, "was written by another version of this program")


def _refuse(path: Path, why: str) -> TextLengths | None:
    _LOG.warning("%s %s; the tokens are counted again", path, why)
    return None


def _write(path: Path, lengths: TextLengths) -> None:
    try:
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, tokens=lengths.tokens, is_writable=lengths.is_writable)
    except OSError as error:
        _warn_unwritable(path, error)


def _warn_unwritable(path: Path, error: OSError) -> None:
    if os.environ.get("RANK", "0") == "0":
        _LOG.warning(
            "token counts cannot be kept in %s (%s), so every start counts them again; set VLM_AGENT_CACHE to a "
            "folder that can be written",
            path.parent,
            error.strerror or error,
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Waits while another process holds the lock, but not for ever. Raises OSError where locks do not exist."""
    with ExitStack() as stack:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                stack.enter_context(file_lock(lock, "another process counts the same tokens"))
                break
            except DatasetError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        yield
