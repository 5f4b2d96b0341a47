"""Texts that a shell with wrong quoting would run, break on or change."""

import itertools
import random

STRINGS = 1000

WHOLE = [
    "'", '"', "`", "\\", "$", ";", "\n", "\0", "%s", "%", "-", "--", "#", "~", "*", "{a,b}", "!!", "=", "",
    "'; input keyevent 3; '", '"; input keyevent 3; "', "$(input keyevent 3)", "`input keyevent 3`", "$((1+1))",
    "a && input keyevent 3", "a || input keyevent 3", "a | input keyevent 3", "a & input keyevent 3",
    "a\ninput keyevent 3", "a\r\ninput keyevent 3", "a\0; input keyevent 3", "> /sdcard/x", "< /sdcard/x",
    "'\"'\"'; input keyevent 3; '\"'\"'", "\\'; input keyevent 3; \\'", "${IFS}input${IFS}keyevent${IFS}3",
    "$'\\x3b'", "; reboot", "a%sb", "%%s", "-n", "--es msg x", "-a ADB_EDITOR_CODE", "eA==; input keyevent 3",
    "😀👩‍👩‍👧‍👦🇳🇱", "שלום עולם", "مرحبا; بالعالم", "\u202eevil\u202c", "e\u0301", "日本語", "\ufeff", "\U0010ffff",
    "\x7f\x1b[31m\x08", "\u2028\u2029", "ａ；ｂ", "a" * 10_240, "';" * 5_120, "😀" * 2_560, "$(" * 5_120, " " * 10_240,
]  # fmt: skip
PIECES = [
    "'", '"', "`", "\\", "$", "(", ")", ";", "|", "&", "<", ">", "\n", "\0", "\t", " ", "%s", "%", "#", "*", "{", "}",
    "$(input keyevent 3)", "input keyevent 3", "😀", "ש", "ع", "\u202e", "é", "word", "-", "=", "!", "~", "^",
]  # fmt: skip


def hostile_strings() -> list[str]:
    rng = random.Random(0)
    random_texts = ("".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in itertools.count())
    return [*WHOLE, *itertools.islice(random_texts, STRINGS - len(WHOLE))]
