"""The review of an annotation, served in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.annotation.review.server import ReviewServer
from vlm_agent.annotation.review.session import ReviewSession


@contextmanager
def reviewing(output: Path) -> Iterator[ReviewServer]:
    with ReviewServer(ReviewSession(output)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
