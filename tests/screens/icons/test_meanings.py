import re

import numpy as np
import pytest

from vlm_agent.errors import UserError
from vlm_agent.screens.icons import LOOKS, MEANINGS, read_icons


def test_each_meaning_has_words_in_english_and_chinese_that_no_other_has():
    for language in ("en", "zh"):
        words = [meaning[language] for meaning in MEANINGS.values()]
        assert all(words) and len(set(words)) == len(words)


def test_chinese_words_are_chinese_and_english_words_are_not():
    assert all(re.search(r"[\u4e00-\u9fff]", words["zh"]) for words in MEANINGS.values())
    assert all(words["en"].isascii() for words in MEANINGS.values())


def test_each_meaning_describes_what_its_icons_look_like():
    assert set(LOOKS) == set(MEANINGS) and all(LOOKS.values())
    assert len(MEANINGS) >= 170


def test_names_are_identifiers_so_that_they_fit_in_element_types():
    assert all(name.isidentifier() and name.islower() for name in MEANINGS)


def test_the_reader_none_guesses_nothing():
    assert read_icons("none").read([np.zeros((8, 8, 3), np.uint8)] * 2) == [(), ()]


def test_an_unknown_reader_is_named_in_the_error():
    with pytest.raises(UserError, match=r"'nome' is unknown; choose one of .*none"):
        read_icons("nome")
