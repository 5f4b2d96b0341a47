"""Qwen's first tokenizer, from `qwen.tiktoken` to one of the tokenizers library.

Byte-level BPE whose ranks are the merge order, over the pieces of a pattern, after NFC
normalisation. No file lists its special tokens: their order, and so their ids, is fixed here.
"""

import base64
import binascii
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from vlm_agent.models.conversion import CheckpointFormatError

VOCABULARY_FILE = "qwen.tiktoken"

END = "<|endoftext|>"
"""Ends a text, and pads. No token starts a text."""

IMAGE_START, IMAGE_END = "<img>", "</img>"
"""The marks around a screen's visual tokens."""

SPECIAL_TOKENS = (
    END,
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|extra_{number}|>" for number in range(205)),
    *(f"<{slash}{name}>" for name in ("ref", "box", "quad") for slash in ("", "/")),
    IMAGE_START,
    IMAGE_END,
    "<imgpad>",
)
"""In the order of their ids, which follow those of the ranks."""

# A contraction; letters with one sign before them; a digit; signs; line ends; spaces. As published.
_PIECE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build_tokenizer(vocabulary: Path, context: int) -> PreTrainedTokenizerFast:
    """The tokenizer of `qwen.tiktoken`; `context` is the longest sequence in tokens.

    Raises CheckpointFormatError for a file that is damaged or no such vocabulary.
    """
    ranks = read_ranks(vocabulary)
    spelt = {token: "".join(_LETTERS[byte] for byte in token) for token in ranks}
    merges = [(spelt[left], spelt[right]) for left, right in _merges(ranks)]
    # ignore_merges: a piece of the vocabulary is one token, even if merges would not produce it.
    model = models.BPE({spelt[token]: rank for token, rank in ranks.items()}, merges, ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    )


def read_ranks(path: Path) -> dict[bytes, int]:
    """The byte sequences of a tiktoken file, a line "base64 rank" each, in the order of their ranks 0, 1, 2, …"""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise CheckpointFormatError(f"{path}, line {number}: not a base64 token and its rank") from None
    singles = sum(len(token) == 1 for token in ranks)
    if list(ranks.values()) != list(range(len(ranks))) or singles != 256 or b"" in ranks:
        raise CheckpointFormatError(
            f"{path}: {len(ranks)} tokens, {singles} of them single bytes; a whole file has all 256 of these, and its "
            "ranks go from 0 up without a gap. Download it again"
        )
    return ranks


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The two parts of each token, in the order of ranks.

    A token that the merges of lower ranks do not reduce to two parts has no merge; it only matches a whole piece.
    """
    parts = (_merge_below(token, rank, ranks) for token, rank in ranks.items() if len(token) > 1)
    return [(pair[0], pair[1]) for pair in parts if len(pair) == 2]


def _merge_below(token: bytes, limit: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The byte-pair encoding of `token` with the ranks below `limit` only."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 1:
        joined = [ranks.get(left + right, limit) for left, right in pairwise(parts)]
        lowest = min(joined)
        if lowest >= limit:
            break
        at = joined.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


_LETTERS = bytes_to_unicode()
"""Byte → the printable character that stands for it in a byte-level vocabulary, as GPT-2 chose them."""
