"""Programs for files and folders: `ls`, `mkdir`, `rm`, `rmdir`, `cp`, `mv`, `touch`, `test`."""

import posixpath
import stat
import time
from collections.abc import Callable

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError
from vlm_agent.simulator.adb_daemon.shell.tools.options import number, short_options


def ls(handset: Handset, call: Call) -> Result:
    """`ls [-l] [-a] [-d] [-1] [PATH …]`."""
    options, paths = short_options("ls", call.words, "lad1")
    files, lines, missing = handset.files, [], []
    folders = []
    for path in paths or ["/"]:
        if not files.about(path)[0]:
            missing.append(f"ls: {path}: No such file or directory\n")
        elif files.is_folder(path) and "-d" not in options:
            folders.append(path)
        else:
            lines.append(_entry(handset, path, path, "-l" in options))
    for path in folders:
        if len(paths) > 1:
            lines.append(f"\n{path}:" if lines else f"{path}:")
        names = [name for name in files.within(path) if "-a" in options or not name.startswith(".")]
        lines += [_entry(handset, posixpath.join(path, name), name, "-l" in options) for name in names]
    return Result("".join(f"{line}\n" for line in lines).encode(), "".join(missing).encode(), int(bool(missing)))


def _entry(handset: Handset, path: str, name: str, is_long: bool) -> str:
    if not is_long:
        return name
    mode, size, seconds = handset.files.about(path)
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
    return f"{stat.filemode(mode)} 1 shell shell {size:>8} {when} {name}"


def mkdir(handset: Handset, call: Call) -> Result:
    """`mkdir [-p] FOLDER …`."""
    options, paths = short_options("mkdir", call.words, "p")
    _check_paths("mkdir", paths)
    for path in paths:
        handset.files.check_length(path)
        parents = [posixpath.join("/", *path.split("/")[: at + 1]) for at in range(len(path.rstrip("/").split("/")))]
        for folder in parents if "-p" in options else [path]:
            if "-p" not in options or not handset.files.is_folder(folder):
                handset.files.make_folder(folder)
    return Result()


def rm(handset: Handset, call: Call) -> Result:
    """`rm [-f] [-r] PATH …`."""
    options, paths = short_options("rm", call.words, "frR")
    if "-f" not in options:
        _check_paths("rm", paths)
    for path in paths:
        if "-f" in options and not handset.files.about(path)[0]:
            continue
        if handset.files.is_folder(path) and not {"-r", "-R"} & set(options):
            raise OSError(f"{path}: Is a directory")
        handset.files.remove(path)
    return Result()


def rmdir(handset: Handset, call: Call) -> Result:
    _check_paths("rmdir", call.words)
    for path in call.words:
        if not handset.files.is_folder(path) or handset.files.within(path):
            raise OSError(f"{path}: {'Directory not empty' if handset.files.within(path) else 'Not a directory'}")
        handset.files.remove(path)
    return Result()


def cp(handset: Handset, call: Call) -> Result:
    """`cp FILE TARGET`."""
    _copy(handset, "cp", call.words)
    return Result()


def mv(handset: Handset, call: Call) -> Result:
    """`mv FILE TARGET`."""
    source, target = _copy(handset, "mv", [word for word in call.words if word != "-f"])
    if handset.files.place(source) != handset.files.place(target):
        handset.files.remove(source)
    return Result()


def _copy(handset: Handset, program: str, words: list[str]) -> tuple[str, str]:
    if len(words) != 2 or any(word.startswith("-") for word in words):
        raise ToolError(f"{program}: the simulated phone offers {program} FILE TARGET")
    source, target = words
    if handset.files.is_folder(target):
        target = posixpath.join(target, posixpath.basename(source))
    handset.files.write(target, handset.files.read(source))
    return source, target


def touch(handset: Handset, call: Call) -> Result:
    """`touch FILE …`."""
    _check_paths("touch", call.words)
    for path in call.words:
        handset.files.write(path, handset.files.read(path) if handset.files.is_file(path) else b"")
    return Result()


def _check_paths(program: str, paths: list[str]) -> None:
    if not paths or any(path.startswith("-") for path in paths):
        raise ToolError(f"{program}: needs paths")


def test(handset: Handset, call: Call) -> Result:
    """`test EXPRESSION`: -e -f -d -s -n -z with a word, = != -eq -ne -gt -ge -lt -le between two, `!` before either."""
    return Result(status=int(not _holds(handset, call.words)))


def bracket(handset: Handset, call: Call) -> Result:
    """`[ EXPRESSION ]`."""
    if call.words[-1:] != ["]"]:
        raise ToolError("[: missing ]", 2)
    return Result(status=int(not _holds(handset, call.words[:-1])))


def _holds(handset: Handset, words: list[str]) -> bool:
    negations = 0
    while negations < len(words) - 1 and words[negations] == "!":
        negations += 1
    return _holds_plainly(handset, words[negations:]) != bool(negations % 2)


def _holds_plainly(handset: Handset, words: list[str]) -> bool:
    """Without `!` before the expression."""
    match words:
        case []:
            return False
        case [word]:
            return bool(word)
        case [operator, word] if operator in _OF_ONE:
            return _OF_ONE[operator](handset, word)
        case [left, operator, right] if operator in ("=", "==", "!="):
            return (left == right) == (operator != "!=")
        case [left, operator, right] if operator in _OF_NUMBERS:
            return _OF_NUMBERS[operator](number("test", left), number("test", right))
    raise ToolError(f"test: bad expression {' '.join(words)}", 2)


_OF_ONE: dict[str, Callable[[Handset, str], bool]] = {
    "-d": lambda handset, path: handset.files.is_folder(path),
    "-e": lambda handset, path: bool(handset.files.about(path)[0]),
    "-f": lambda handset, path: handset.files.is_file(path),
    "-n": lambda handset, text: bool(text),
    "-s": lambda handset, path: handset.files.about(path)[1] > 0,
    "-z": lambda handset, text: not text,
}

_OF_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}
