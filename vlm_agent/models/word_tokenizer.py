"""A tokenizer for models trained from scratch: one token per known word, bytes for the rest.

A small model from random weights cannot learn to spell within minutes. This tokenizer has one token for every word of
the training data and one for every coordinate of each axis ("7 " is row 7, "90" is column 90; the space marks a row).
Other text falls back to bytes, so that every text decodes to itself.

With leading spaces a word and the space before it are one token, as in the tokenizers of pretrained models. A third of
the tokens of a chat are single spaces otherwise.
"""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vlm_agent.action_languages import Coordinate, LanguageVocabulary

_SPECIAL = ("<pad>", "<s>", "</s>")
_WORD = r"\p{L}[\p{L}\p{M}'_]*"
_SPACE = " "
_ROW = r"\d+ (?=\d)"
_NUMBER = re.compile(r"\d+ ?")
_BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def build_word_tokenizer(
    texts: Iterable[str], language: LanguageVocabulary, size: int, leading_spaces: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, the language's phrases and coordinates, and the most frequent words of `texts` that `size`
    tokens leave room for.

    `leading_spaces`: a word includes the space before it, so "tap" and " tap" are two tokens. Deterministic: equally
    frequent words are added in alphabetical order.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    coordinates = [coordinate.piece for coordinate in language.coordinates]
    phrases = sorted(language.phrases, key=len, reverse=True)
    marks = [re.escape(piece) for piece in coordinates if not _NUMBER.fullmatch(piece)]
    fixed_patterns = [*map(_phrase_pattern, phrases), *marks]
    # Phrases and coordinates stay whole: a space before them is a token of its own.
    apart = f"(?!{'|'.join(fixed_patterns)})" if fixed_patterns else ""
    word = f"(?:{_SPACE}{apart})?{_WORD}" if leading_spaces else _WORD
    splitter = pre_tokenizers.Split(Regex("|".join([*fixed_patterns, _ROW, r"\d+", word, "."])), "isolated")
    fixed = map(_as_bytes, (*phrases, *coordinates))
    tokens = dict.fromkeys([*_SPECIAL, *alphabet, *fixed])
    counts = Counter(piece for text in texts for piece, _ in splitter.pre_tokenize_str(text))
    for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if len(tokens) >= size:
            break
        tokens[_as_bytes(piece)] = None
    # ignore_merges: a piece of the vocabulary is one token; without merges, any other piece becomes bytes.
    model = models.BPE({token: index for index, token in enumerate(tokens)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, _BYTE_LEVEL])
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_SPECIAL[0],
        bos_token=_SPECIAL[1],
        eos_token=_SPECIAL[2],
        clean_up_tokenization_spaces=False,
    )


def coordinate_ids(tokenizer: PreTrainedTokenizerBase, coordinates: Iterable[Coordinate]) -> list[int]:
    """The token ids of coordinates in a tokenizer that `build_word_tokenizer` built."""
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[_as_bytes(coordinate.piece)] for coordinate in coordinates]


def words_by_space(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The token ids of words with their leading space and, in the same order, without it, for words that the
    vocabulary contains in both forms."""
    vocabulary, space = tokenizer.get_vocab(), _as_bytes(_SPACE)
    pairs = [
        (number, vocabulary[token.removeprefix(space)])
        for token, number in sorted(vocabulary.items(), key=lambda item: item[1])
        if token.startswith(space) and token.removeprefix(space) in vocabulary
    ]
    return [number for number, _ in pairs], [number for _, number in pairs]


def _phrase_pattern(phrase: str) -> str:
    # Only before a number, or " to " would match in every goal; whole words only, or "complete" would split
    # "completed".
    end = r"(?=\d)" if phrase.endswith(" ") else r"(?![\p{L}\p{M}'_])" if phrase[-1].isalpha() else ""
    return re.escape(phrase) + end


def _as_bytes(piece: str) -> str:
    """The piece in ByteLevel's spelling, which is the spelling of the vocabulary."""
    return "".join(part for part, _ in _BYTE_LEVEL.pre_tokenize_str(piece))
