"""adb: the program, its server and its phones."""

import os
import re
import socket
from typing import TYPE_CHECKING

from vlm_agent.cli.doctor.check import BrokenError, Check, one_line, output_of

if TYPE_CHECKING:
    from vlm_agent.devices.adb.discovery import ServerAddress

_ANSWER_SECONDS = 10.0


def _adb() -> str:
    import adbutils

    from vlm_agent.devices.adb.discovery import server_address, start_server, states

    program = adbutils.adb_path()
    printed = output_of([program, "version"])
    version = re.search(r"^Android Debug Bridge version (\S+)", printed, re.MULTILINE)
    if version is None:
        raise BrokenError(f"`{program} version` prints no version of adb, but {one_line(printed)!r}")
    was_running = _listens(server_address(os.environ))
    client = start_server(_ANSWER_SECONDS)
    try:
        phones = states(client)
    finally:
        if not was_running:
            client.server_kill()
    listed = ", ".join(f"{serial}: {state}" for serial, state in phones.items())
    return f"adb {version[1]} ({program}), {len(phones)} phone(s){': ' if phones else ''}{listed}"


def _listens(server: "ServerAddress") -> bool:
    try:
        socket.create_connection((server.host, server.port), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


ADB = Check(
    _adb,
    "`adb version`, start of its server (stopped again if it did not run before), list of its phones",
    ("act and record with --device adb",),
    "apt-get install adb, and then `adb devices`",
)
