"""The words of `am` are read as Android reads them."""

import pytest

from vlm_agent.simulator.adb_daemon.shell.session import ToolError
from vlm_agent.simulator.adb_daemon.shell.tools.intents import read_intent


def test_the_short_option_of_a_text_is_the_long_one():
    words = ["-a", "ADB_INPUT_TEXT", "-e", "msg", "hello"]
    assert read_intent(words).extras == {("--es", "msg"): "hello"}
    assert read_intent(words) == read_intent(["--es" if word == "-e" else word for word in words])
    assert read_intent(["--ei", "code", "4"]).extras == {("--ei", "code"): "4"}


def test_a_bare_word_is_an_address_a_component_or_a_package():
    intent = read_intent(["https://example.org/a", "-W", "app/.Main", "org.app", "-c", "HOME", "--user", "0"])
    assert (intent.data, intent.component, intent.package) == ("https://example.org/a", "app/.Main", "org.app")
    assert (intent.flags, intent.categories) == ({"-W"}, ["HOME"])


@pytest.mark.parametrize(
    ("words", "message"), [(["--es", "msg"], "Argument expected after '--es'"), (["--what"], "Unknown option: --what")]
)
def test_a_cut_or_unknown_option_is_an_error(words, message):
    with pytest.raises(ToolError, match=message):
        read_intent(words)
