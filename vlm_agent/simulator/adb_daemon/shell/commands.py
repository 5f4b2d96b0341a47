"""The commands of the simulated phone's shell: those of Android that operate a phone from outside.

`TOOLS` is the table of all of them. What is not in it fails as on Android (status 127), and what a tool does not offer
is an error: no command reports success without its effect. No command sets up a task or reports whether a task is
reached.
"""

from collections.abc import Callable
from functools import partial

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Command, Result, Shell, failure, output
from vlm_agent.simulator.adb_daemon.shell.tools import (
    activities,
    files,
    grep,
    hierarchy,
    input,
    keyboards,
    packages,
    screen,
    services,
    settings,
    system,
    texts,
)

Tool = Callable[[Handset, Call], Result]

_UNKNOWN_SERVICE = 20


def _cmd(handset: Handset, call: Call) -> Result:
    """`cmd SERVICE …`: the same tools by the name of their service."""
    tool = _SERVICES.get(call.words[0]) if call.words else None
    if tool is None:
        return failure(f"cmd: Can't find service: {' '.join(call.words[:1])}", _UNKNOWN_SERVICE)
    return tool(handset, Call(call.words[1:], call.stdin))


_SERVICES: dict[str, Tool] = {
    "activity": activities.am,
    "input": input.input_,
    "input_method": keyboards.ime,
    "package": packages.pm,
    "settings": settings.settings,
    "statusbar": screen.statusbar,
    "window": screen.wm,
}

TOOLS: dict[str, Tool] = {
    "[": files.bracket,
    "am": activities.am,
    "base64": texts.base64,
    "cat": texts.cat,
    "cmd": _cmd,
    "cp": files.cp,
    "cut": texts.cut,
    "date": system.date,
    "dumpsys": services.dumpsys,
    "echo": texts.echo,
    "false": lambda handset, call: Result(status=1),
    "getevent": screen.getevent,
    "getprop": settings.getprop,
    "grep": grep.grep,
    "head": texts.head,
    "id": system.id_,
    "ifconfig": system.ifconfig,
    "ime": keyboards.ime,
    "input": input.input_,
    "ip": system.ip,
    "ls": files.ls,
    "mkdir": files.mkdir,
    "monkey": activities.monkey,
    "mv": files.mv,
    "pm": packages.pm,
    "pwd": lambda handset, call: output("/"),
    "rm": files.rm,
    "rmdir": files.rmdir,
    "screencap": screen.screencap,
    "settings": settings.settings,
    "sleep": system.sleep,
    "tail": texts.tail,
    "test": files.test,
    "touch": files.touch,
    "true": lambda handset, call: Result(),
    "uiautomator": hierarchy.uiautomator,
    "wc": texts.wc,
    "whoami": lambda handset, call: output("shell"),
    "wm": screen.wm,
}


MISSING = {
    "app_process": "the simulated phone runs no Android code, and no server or agent that a client pushes",
    "content": "the simulated phone has no content providers",
    "logcat": "the simulated phone has no log",
    "su": "the simulated phone has no root access",
    "svc": "the simulated phone has switches on its screen only",
}
"""Programs of Android that clients need and this phone lacks, with the reason in their error."""


def shell_of(handset: Handset) -> Shell:
    """The shell of a phone."""
    commands: dict[str, Command] = {name: partial(tool, handset) for name, tool in TOOLS.items()}
    return Shell(commands, handset.commands.append, handset.files, MISSING)
