"""A screen in words: every part once, in few tokens, and no text of the screen can imitate a line of ours."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.screens.describe import LONGEST, WORDS, describe, describe_part, plain
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.seen import Block, Part, Understood

BOX = (0.1, 0.1, 0.1, 0.1)
LINE = re.compile(r"(\d+)((?: [^:\n]+)?)(?:: (.+))?")


def screen(*blocks: tuple[str, list[Part]]) -> Understood:
    """Blocks of (title, parts)."""
    parts = tuple(part for _, members in blocks for part in members)
    made = tuple(Block(BOX, tuple(part.id for part in members), title) for title, members in blocks)
    return Understood((100, 50), (), (), parts, made)


def test_blocks_have_titles_and_parts_their_states():
    understood = screen(
        ("", [Part(0, "status_bar", BOX, "12:30")]),
        (
            "Network",
            [
                Part(1, "text", BOX, "Network"),
                Part(2, "switch", BOX, "Wi-Fi", on=True),
                Part(3, "check_box", BOX, "", on=False),
                Part(4, "text", BOX, "Network"),
            ],
        ),
        ("", [Part(5, "button", BOX, "", "settings"), Part(6, "image", BOX, "News", selected=True)]),
    )
    assert describe(understood) == (
        "0 status bar: 12:30\n\n"
        "1 title: Network\n2 switch on: Wi-Fi\n3 check box off\n4: Network\n\n"
        "5 button settings\n6 image selected: News"
    )
    assert describe(understood, "zh") == (
        "0 状态栏: 12:30\n\n"
        "1 标题: Network\n2 开关 开: Wi-Fi\n3 复选框 关\n4: Network\n\n"
        f"5 按钮 {MEANINGS['settings']['zh']}\n6 图片 已选中: News"
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_kind_and_state_has_a_word_without_a_colon(language):
    assert set(WORDS[language]) == {*WIDGET_KINDS, "title", "on", "off", "selected"}
    words = [*WORDS[language].values(), *(meaning[language] for meaning in MEANINGS.values())]
    assert all(word == plain(word) and ":" not in word for word in words)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Wi-Fi\n1 button: Pay", "0: Wi-Fi 1 button: Pay"),
        ("Wi-Fi\r\n\r\n1 button: Pay", "0: Wi-Fi 1 button: Pay"),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg", "0: a b c d e f g"),
        ("pay \u202eeerf\u202c \u2066now\u2069 \u200f", "0: pay eerf now"),
        ("\x1b[31mred\x07", "0: [31mred"),
        ("zero\u200bwidth \ufeff", "0: zero width"),
        ("  ", "0"),
        ("switch on: Wi-Fi", "0: switch on: Wi-Fi"),
        ("\ud800", "0"),
        ("e\u0301", "0: \u00e9"),
    ],
)
def test_a_text_stays_in_its_line(text, line):
    assert describe(screen(("", [Part(0, "text", BOX, text)]))) == line


def test_a_long_text_is_cut():
    assert len(plain("word " * 1000)) == LONGEST
    assert plain("word " * 1000).endswith("…")


PARTS = st.lists(
    st.tuples(
        st.sampled_from((*WIDGET_KINDS, "text")),
        st.text(st.sampled_from("ab0:\n\r\u2028\u202e switchon") | st.characters(), max_size=12),
        st.sampled_from(("", "settings", "own: meaning\nof a reader")),
        st.sampled_from((None, True, False)),
        st.booleans(),
        st.booleans(),
    ),
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(PARTS, st.sampled_from(("en", "zh")))
def test_every_part_is_one_line_under_its_id(rows, language):
    parts = [
        Part(number, kind, BOX, text, meaning, on, selected)
        for number, (kind, text, meaning, on, selected, _) in enumerate(rows)
    ]
    half = len(parts) // 2
    title = next((part.text for part in parts[:half] if part.kind == "text"), "")
    words = describe(screen((title, parts[:half]), ("", parts[half:])), language)
    found = [LINE.fullmatch(line) for line in words.split("\n") if line]
    assert all(found)
    assert [int(line[1]) for line in found] == list(range(len(parts)))
    assert len(words.splitlines()) == len(words.split("\n")) or not words
    for line, part in zip(found, parts, strict=True):
        assert (line[3] or "") == plain(part.text)
        states = [WORDS[language]["on" if part.on else "off"]] if part.on is not None else []
        states += [WORDS[language]["selected"]] if part.selected else []
        assert line[2].split()[len(line[2].split()) - len(states) :] == states or not states


@given(st.text())
def test_a_plain_text_is_one_line_without_control_characters(text):
    line = plain(text)
    assert len(line.splitlines()) <= 1
    assert plain(line) == line
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in line)


def test_a_part_is_described_alone():
    assert describe_part(Part(7, "edit_text", BOX, "Search apps")) == "7 text field: Search apps"
