"""Languages whose action is a line: a word, and what it acts on.

`SCROLL` is the direction of the finger in both, as their scorers of GUI-Odyssey have it. OS-Atlas' scorer of
AndroidControl needs AndroidControl's direction, which is that of the content: `opposite_swipe_words` (a guess).

Kinds that a language lacks are written in its form: ANSWER, PRESS_ENTER, and for `odyssey_agent` also OPEN_APP and
PAUSE. Typed text has no escapes. In OS-Atlas it ends at the first `]` that ends the answer.
"""

import re
from typing import ClassVar, Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.action_languages.released.language import Call, DisputedSettings, Form, ReleasedSettings
from vlm_agent.action_languages.released.reads import plain, text, touch, worded

_NAMES = {
    **{f"PRESS_{word}": name for word, name in {"BACK": "back", "HOME": "home", "RECENT": "recents"}.items()},
    "PRESS_ENTER": "enter",
    "COMPLETE": "complete",
    "IMPOSSIBLE": "impossible",
}
_READS = {
    "CLICK": touch("tap", "point"),
    "LONG_PRESS": touch("long_press", "point"),
    "SCROLL": worded("word"),
    "TYPE": text("type", "text"),
    "OPEN_APP": text("open_app", "text"),
    "ANSWER": text("answer", "text"),
    "WAIT": plain("wait"),
    **{word: plain(name) for word, name in _NAMES.items()},
}
_ATLAS_START = re.compile(r"[Aa]ctions:\s*+`?(?=[A-Z])")
_ATLAS = re.compile(
    r"(?:(?:CLICK|LONG_PRESS)\s*+(?:<point>)?\[\[\s*+(?P<x>[0-9.]{1,12})\s*+,\s*+(?P<y>[0-9.]{1,12})\s*+\]\]"
    r"|(?:TYPE|OPEN_APP|ANSWER)\s*+\[(?P<text>.*?)\](?=\s*+(?:`\s*+)?(?:\Z|<\|im_end\|>|\nthoughts:))"
    r"|SCROLL\s*+\[(?P<word>UP|DOWN|LEFT|RIGHT)\]"
    rf"|(?:WAIT|{'|'.join(_NAMES)})\b)",
    re.DOTALL,
)
_ODYSSEY = re.compile(
    r"(?:(?:CLICK|LONG_PRESS): \((?P<x>[0-9.]{1,12}), ?(?P<y>[0-9.]{1,12})\)\s*+"
    r"|(?:TYPE|OPEN_APP|ANSWER):(?: (?P<text>.*+))?"
    r"|SCROLL: (?P<word>UP|DOWN|LEFT|RIGHT)\s*+"
    rf"|(?:PAUSE|{'|'.join(_NAMES)})\s*+)",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Z_]++")


def _call(found: re.Match[str] | None) -> Call | None:
    name = None if found is None else _NAME.match(found[0])
    if found is None or name is None:
        return None
    arguments: dict[str, object] = {"text": found["text"] or "", "word": found["word"]}
    if found["x"] is not None:
        arguments["point"] = [float(found["x"]), float(found["y"])]
    return Call(name[0], arguments)


def _atlas_call(answer: str) -> Call | None:
    start = _ATLAS_START.search(answer)
    return None if start is None else _call(_ATLAS.match(answer, start.end()))


_WORDS = {name: name.upper() for name in SWIPES}
_ATLAS_WRITES = {
    "tap": "CLICK <point>[[%(x)s,%(y)s]]</point>",
    "long_press": "LONG_PRESS <point>[[%(x)s,%(y)s]]</point>",
    "swipe": "SCROLL [%(word)s]",
    "type": "TYPE [%(text)s]",
    "open_app": "OPEN_APP [%(text)s]",
    "answer": "ANSWER [%(text)s]",
    "wait": "WAIT",
    **{name: word for word, name in _NAMES.items()},
}
_ODYSSEY_WRITES = _ATLAS_WRITES | {
    "tap": "CLICK: (%(x)s, %(y)s)",
    "long_press": "LONG_PRESS: (%(x)s, %(y)s)",
    "swipe": "SCROLL: %(word)s",
    "type": "TYPE: %(text)s",
    "open_app": "OPEN_APP: %(text)s",
    "answer": "ANSWER: %(text)s",
    "wait": "PAUSE",
}


class OsAtlasSettings(DisputedSettings):
    """OS-Atlas, 0 to 1000."""

    name: Literal["os_atlas"] = "os_atlas"
    FORM: ClassVar[Form] = Form(_atlas_call, _READS, _ATLAS_WRITES, str, words=_WORDS, around="actions:\n%s")


class OdysseyAgentSettings(ReleasedSettings):
    """OdysseyAgent, 0 to 1000."""

    name: Literal["odyssey_agent"] = "odyssey_agent"
    FORM: ClassVar[Form] = Form(
        lambda answer: _call(_ODYSSEY.fullmatch(answer)),
        _READS | {"PAUSE": plain("wait")},
        _ODYSSEY_WRITES,
        str,
        words=_WORDS,
    )
