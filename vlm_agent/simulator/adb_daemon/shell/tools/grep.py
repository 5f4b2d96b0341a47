"""`grep`. Patterns come from clients and are untrusted, so that a search ends after `SECONDS`."""

import re
import time

import regex

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError
from vlm_agent.simulator.adb_daemon.shell.tools.options import number, short_options
from vlm_agent.simulator.adb_daemon.shell.tools.texts import read_inputs

SECONDS = 5.0

_BASIC_SPECIAL = "+?|(){}"
"""Characters that a basic expression means literally, and specially after a backslash; in extended ones the reverse."""


def grep(handset: Handset, call: Call) -> Result:
    """`grep [-EFvicnoqwxHh] [-m COUNT] [-e PATTERN] PATTERN [FILE …]`: status 1 without a match, 2 for an error."""
    options, rest = short_options("grep", call.words, "EFvicnoqwxhHm:e:")
    if "-e" not in options and not rest:
        raise ToolError("grep: no pattern", 2)
    paths = rest if "-e" in options else rest[1:]
    pattern = _compiled(options.get("-e", rest[0] if rest else ""), options)
    inputs = read_inputs(handset, "grep", paths, call.stdin)
    most = number("grep", options["-m"]) if "-m" in options else None
    is_named = "-H" in options or (len(inputs) > 1 and "-h" not in options)
    lines, count = [], 0
    for path, data in inputs:
        found = _matches(pattern, data, "-v" in options, most)
        count += len(found)
        name = f"{path}:" if is_named else ""
        if "-c" in options:
            lines.append(f"{name}{len(found)}")
            continue
        for at, line in found:
            head = name + (f"{at}:" if "-n" in options else "")
            parts = _parts(pattern, line) if "-o" in options and "-v" not in options else [line]
            lines += [head + part for part in parts]
    text = "" if "-q" in options else "".join(f"{line}\n" for line in lines)
    return Result(text.encode(), status=int(count == 0))


def _matches(pattern: regex.Pattern, data: bytes, is_inverted: bool, most: int | None) -> list[tuple[int, str]]:
    """(number, text) of the lines that match."""
    found: list[tuple[int, str]] = []
    end = time.monotonic() + SECONDS
    text = data.decode(errors="replace")
    for at, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        if most is not None and len(found) >= most:
            break
        if (_search(pattern, line, end) is not None) != is_inverted:
            found.append((at, line))
    return found


def _search(pattern: regex.Pattern, line: str, end: float) -> regex.Match | None:
    """`end`: of the search in all lines, on the clock of `time.monotonic`."""
    left = end - time.monotonic()
    try:
        if left > 0:
            return pattern.search(line, timeout=left)
    except TimeoutError:
        pass
    raise ToolError("grep: the pattern takes too long on the simulated phone", 2)


def _parts(pattern: regex.Pattern, line: str) -> list[str]:
    return [match[0] for match in pattern.finditer(line, timeout=SECONDS) if match[0]]


def _compiled(text: str, options: dict[str, str]) -> regex.Pattern:
    source = re.escape(text) if "-F" in options else _translated(text, "-E" in options)
    if "-w" in options:
        source = rf"(?<!\w)(?:{source})(?!\w)"
    if "-x" in options:
        source = rf"\A(?:{source})\Z"
    try:
        return regex.compile(source, regex.IGNORECASE if "-i" in options else 0)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ToolError(f"grep: bad pattern {text!r}: {error}", 2) from None


def _translated(text: str, is_extended: bool) -> str:
    """A POSIX expression as one of `regex`."""
    out, at = "", 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and at + 1 < len(text):
            following = text[at + 1]
            is_special = following in _BASIC_SPECIAL and not is_extended
            keeps = is_special or following in "wWsSbB" or following.isdecimal()
            out += following if is_special else (letter + following if keeps else re.escape(following))
            at += 2
        elif letter == "[" and (end := _class_end(text, at)):
            inner = text[at + 1 : end - 1]
            out += "[" + re.sub(r"\\|(?<!^)\[(?!:)|&&|\|\||--|~~", lambda match: re.escape(match[0]), inner) + "]"
            at = end
        else:
            is_literal = letter == "[" or (letter in _BASIC_SPECIAL and not is_extended)
            out += re.escape(letter) if is_literal else letter
            at += 1
    if "(?" in out.replace(r"\(?", ""):
        raise ToolError(f"grep: bad pattern {text!r}", 2)
    return out


def _class_end(text: str, start: int) -> int:
    """The end of the bracket expression that starts there, 0 if it has none."""
    at = start + 1
    at += text.startswith("^", at)
    at += text.startswith("]", at)
    while at < len(text):
        if text.startswith("[:", at) and (end := text.find(":]", at)) >= 0:
            at = end + 2
        elif text[at] == "]":
            return at + 1
        else:
            at += 1
    return 0
