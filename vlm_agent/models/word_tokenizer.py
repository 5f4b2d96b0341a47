"""A tokenizer for models trained from scratch: one token a known word, bytes for the rest.

A checkpoint brings its own tokenizer. A small model from random weights cannot learn to spell within minutes, so this
one gives every word that its training data holds a token, every coordinate one token on each axis ("7 " is row 7,
"90" column 90: the space after a row tells them apart), and falls back to bytes, so that any text survives.
"""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_SPECIAL = ("<pad>", "<s>", "</s>")
_WORD = r"\p{L}[\p{L}\p{M}'_]*"
_ROW = r"\d+ (?=\d)"


def build_word_tokenizer(
    texts: Iterable[str], phrases: Iterable[str], bins: int, vocabulary: int
) -> PreTrainedTokenizerFast:
    """Tokens for the `phrases` of an action language, its coordinates, and the commonest words of `texts`.

    `vocabulary` bounds the number of tokens. Deterministic: ties between words go to the alphabet.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    phrases = sorted(phrases, key=len, reverse=True)
    splitter = pre_tokenizers.Split(
        Regex("|".join([*(_phrase_pattern(phrase) for phrase in phrases), _ROW, r"\d+", _WORD, "."])), "isolated"
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fixed = [*phrases, *(f"{number} " for number in range(bins)), *(str(number) for number in range(bins))]
    tokens = dict.fromkeys([*_SPECIAL, *alphabet, *(_as_bytes(byte_level, piece) for piece in fixed)])
    counts = Counter(piece for text in texts for piece, _ in splitter.pre_tokenize_str(text))
    for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if len(tokens) >= vocabulary:
            break
        tokens[_as_bytes(byte_level, piece)] = None
    # ignore_merges: a piece that is in the vocabulary is taken whole; with no merges, any other falls to its bytes.
    model = models.BPE({token: index for index, token in enumerate(tokens)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_SPECIAL[0],
        bos_token=_SPECIAL[1],
        eos_token=_SPECIAL[2],
        clean_up_tokenization_spaces=False,
    )


def coordinate_ids(tokenizer, bins: int) -> tuple[list[int], list[int]]:
    """Token ids of the rows and of the columns 0 … bins-1 in a tokenizer made here."""
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[f"{number}Ġ"] for number in range(bins)], [vocabulary[str(number)] for number in range(bins)]


def _phrase_pattern(phrase: str) -> str:
    # Only before a number, or " to " would swallow that word in every goal; and whole words only, or "complete" would
    # cut "completed" in two.
    end = r"(?=\d)" if phrase.endswith(" ") else r"(?![\p{L}\p{M}'_])" if phrase[-1].isalpha() else ""
    return re.escape(phrase) + end


def _as_bytes(byte_level, piece: str) -> str:
    """The piece as ByteLevel spells it, which is how the vocabulary holds it."""
    return "".join(part for part, _ in byte_level.pre_tokenize_str(piece))
