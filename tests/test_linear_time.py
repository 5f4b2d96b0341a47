"""Readers of texts from outside take linear time, also for texts made to be slow: a row of one piece, repeated."""

import time
from contextlib import suppress

import pytest
from helpers.robustness.parsers import PARSERS

SHORT, LONG = 2_500, 10_000
LONGEST = 100_000

PUMPS = (
    *(
        "1",
        "1 1 1 ",
        "- - - ",
        " ",
        "\n",
        "\r\n",
        '"',
        "'",
        "\\",
        '\\"',
        "[",
        "[[]",
        "{",
        '{"a":',
        "}",
        "<a ",
        "<",
        "&amp;",
    ),
    *(
        "`",
        "```\n",
        "*",
        "a",
        "a.b/C\n",
        "1.",
        "A:",
        "Thought: ",
        "action: ",
        '"THINK" : "',
        "password ",
        "\u0316\u0301",
    ),
    *("在输入框 : ['", "点击 ['", "mFocusedApp=Window{", "0035 0036 ", "</think>", '"action" : '),
)
AROUND = (("", ""), ('{"action": "', "!"))


def pumped(piece: str, length: int, before: str = "", after: str = "") -> str:
    return before + (piece * length)[: length - len(before) - len(after)] + after


def seconds(name: str, text: str) -> float:
    """Seconds of the processor, so that other processes do not count."""
    start = time.process_time()
    with suppress(Exception):  # a reader may refuse the text
        PARSERS[name](text)
    return time.process_time() - start


@pytest.mark.parametrize("name", PARSERS)
def test_four_times_the_text_takes_no_more_than_ten_times_as_long(name):
    for piece in PUMPS:
        for around in AROUND:
            long = pumped(piece, LONG, *around)
            if seconds(name, long) < 0.1:
                continue
            short = pumped(piece, SHORT, *around)
            ratios = (seconds(name, long) / max(seconds(name, short), 1e-3) for _ in range(4))
            assert any(ratio < 10 for ratio in ratios), (piece, around)


@pytest.mark.parametrize("piece", ["1", "1 ", "1 1 1 ", "4111-", "0 ", "1111 1111 1111 1111 "])
def test_masking_a_hundred_thousand_digits_takes_seconds(piece):
    assert seconds("cards", pumped(piece, LONGEST)) < 20
