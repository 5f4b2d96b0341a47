"""The phone's tools for texts print as toybox does."""

import base64 as base64_codec

import pytest

from vlm_agent.simulator.adb_daemon.shell.session import Call, ToolError
from vlm_agent.simulator.adb_daemon.shell.tools.texts import base64

DATA = bytes(range(100))
ENCODED = base64_codec.b64encode(DATA)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], ENCODED[:76] + b"\n" + ENCODED[76:] + b"\n"),
        (["-w", "100"], ENCODED[:100] + b"\n" + ENCODED[100:] + b"\n"),
        (["-w", "0"], ENCODED),
    ],
    ids=["76 columns", "as many as named", "one line"],
)
def test_base64_breaks_lines_at_76_columns_or_as_many_as_named(words, printed):
    assert base64(None, Call(words, DATA)).out == printed
    assert base64(None, Call(["-d"], printed)).out == DATA


def test_what_is_no_base64_is_an_error():
    with pytest.raises(ToolError, match="bad input"):
        base64(None, Call(["-d"], b"!"))
