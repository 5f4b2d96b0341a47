"""The pages of `vlm-agent view`, served in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from vlm_agent.agents.scripted import ScriptedSettings
from vlm_agent.viewing.asking import Asking
from vlm_agent.viewing.server import ViewServer


@contextmanager
def viewing(output: Path, asking: Asking | None = None) -> Iterator[ViewServer]:
    with ViewServer(output, asking) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def scripted(action: str) -> Asking:
    """An agent whose answer is always `action`, in its language."""
    return Asking(ScriptedSettings(actions=[action]), Console(quiet=True))
