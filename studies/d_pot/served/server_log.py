"""The requests of a server's log (`vlm_agent.models.serving`): when each was received, and when it was answered."""

import re
from datetime import datetime
from pathlib import Path

_TIME = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})"
_RECEIVED = re.compile(rf"{_TIME} >> \[Request received\]")
_ANSWERED = re.compile(rf'^{_TIME} .*"POST /v1/chat/completions')


def request_seconds(log: Path) -> list[float]:
    """Seconds of each request to `/v1/chat/completions`, in the order of the log.

    The requests must come one at a time, so that a response is that to the last request. A request without a response,
    which a kill leaves behind, is left out.
    """
    received: datetime | None = None
    found = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := _RECEIVED.search(line):
            received = _time(match[1])
        elif (match := _ANSWERED.search(line)) and received is not None:
            found.append((_time(match[1]) - received).total_seconds())
            received = None
    return found


def _time(words: str) -> datetime:
    return datetime.strptime(words, "%Y-%m-%d %H:%M:%S,%f")
