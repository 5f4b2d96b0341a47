"""Programs that print or filter text: `echo`, `cat`, `head`, `tail`, `wc`, `cut`, `grep`, `base64`."""

import base64 as base64_codec
from collections.abc import Callable, Iterable

from vlm_agent.simulator.adb_daemon.files import MAX_BYTES
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError
from vlm_agent.simulator.adb_daemon.shell.tools.options import number, short_options

_USUAL_LINES = 10


def echo(handset: Handset, call: Call) -> Result:
    """`echo [-n] WORD …`. Escapes such as \\n stay as they are."""
    words = call.words
    if words[:1] in (["-e"], ["-E"]):
        raise ToolError(f"Error: the simulated phone does not offer echo {words[0]}")
    if words[:1] == ["-n"]:
        return Result(" ".join(words[1:]).encode())
    return Result(f"{' '.join(words)}\n".encode())


def read_inputs(handset: Handset, program: str, paths: Iterable[str], stdin: bytes | None) -> list[tuple[str, bytes]]:
    """(path, content) of each file; of the standard input without files or for `-`. Raises OSError for a missing file,
    ToolError without a standard input."""
    inputs: list[tuple[str, bytes]] = []
    for path in tuple(paths) or ("-",):
        if path == "-" and stdin is None:
            raise ToolError(f"{program}: the simulated phone does not read the standard input of adb")
        inputs.append((path, stdin or b"") if path == "-" else (path, handset.files.read(path)))
        if sum(len(data) for _, data in inputs) > MAX_BYTES:
            raise ToolError(f"{program}: the files are too long for the simulated phone")
    return inputs


def cat(handset: Handset, call: Call) -> Result:
    _, paths = short_options("cat", call.words, "u")
    return Result(b"".join(data for _, data in read_inputs(handset, "cat", paths, call.stdin)))


def head(handset: Handset, call: Call) -> Result:
    """`head [-n LINES|-c BYTES|-LINES] [FILE …]`."""
    return _part(handset, "head", call, lambda items, count: items[:count])


def tail(handset: Handset, call: Call) -> Result:
    """`tail [-n LINES|-c BYTES|-LINES] [FILE …]`."""
    return _part(handset, "tail", call, lambda items, count: items[-count:] if count else items[:0])


def _part(handset: Handset, program: str, call: Call, take: Callable) -> Result:
    words = [f"-n{word[1:]}" if word[:1] == "-" and word[1:].isdecimal() else word for word in call.words]
    options, paths = short_options(program, words, "n:c:")
    inputs = read_inputs(handset, program, paths, call.stdin)
    parts = []
    for path, data in inputs:
        if len(inputs) > 1:
            parts.append(f"==> {path} <==\n".encode())
        if "-c" in options:
            parts.append(take(data, number(program, options["-c"])))
        else:
            lines = data.splitlines(keepends=True)
            parts += take(lines, number(program, options.get("-n", str(_USUAL_LINES))))
    return Result(b"".join(parts))


def wc(handset: Handset, call: Call) -> Result:
    """`wc [-l] [-w] [-c] [FILE …]`."""
    options, paths = short_options("wc", call.words, "lwc")
    counts: dict[str, Callable[[bytes], int]] = {
        "-l": lambda data: data.count(b"\n"),
        "-w": lambda data: len(data.split()),
        "-c": len,
    }
    lines = []
    for path, data in read_inputs(handset, "wc", paths, call.stdin):
        numbers = [str(count(data)) for name, count in counts.items() if name in options or not options]
        lines.append(" ".join(numbers + ([] if path == "-" else [path])) + "\n")
    return Result("".join(lines).encode())


def cut(handset: Handset, call: Call) -> Result:
    """`cut -d CHARACTER -f LIST`, with a list such as 2 or 1,3 or 2-."""
    options, paths = short_options("cut", call.words, "d:f:")
    mark = options.get("-d", "\t")
    if "-f" not in options or len(mark) != 1:
        raise ToolError("cut: the simulated phone offers cut -d CHARACTER -f LIST")
    wanted = [_range(part) for part in options["-f"].split(",")]
    lines = []
    for _, data in read_inputs(handset, "cut", paths, call.stdin):
        for line in data.decode(errors="replace").splitlines():
            fields = line.split(mark)
            kept = [one for at, one in enumerate(fields, 1) if any(first <= at <= last for first, last in wanted)]
            lines.append((mark.join(kept) if len(fields) > 1 else line) + "\n")
    return Result("".join(lines).encode())


def _range(text: str) -> tuple[int, int]:
    """The first and last field of `2`, `2-`, `-3` or `2-3`."""
    first, dash, last = text.partition("-")
    end = number("cut", last) if last else (2**31 if dash else number("cut", first))
    return (number("cut", first) if first else 1), end


def base64(handset: Handset, call: Call) -> Result:
    """`base64 [-w COLUMNS] [-d] [FILE]`."""
    options, paths = short_options("base64", call.words, "w:d")
    data = b"".join(data for _, data in read_inputs(handset, "base64", paths, call.stdin))
    if "-d" in options:
        try:
            return Result(base64_codec.b64decode(b"".join(data.split()), validate=True))
        except ValueError:
            raise ToolError("base64: bad input") from None
    text, columns = base64_codec.b64encode(data), number("base64", options.get("-w", "76"))
    if not columns:
        return Result(text)
    return Result(b"".join(text[at : at + columns] + b"\n" for at in range(0, len(text), columns)))
