"""The review of an annotation, served in a thread."""

from contextlib import AbstractContextManager
from pathlib import Path

from helpers.pages.served_pages import served

from vlm_agent.annotation.review.server import ReviewServer
from vlm_agent.annotation.review.session import ReviewSession


def reviewing(output: Path) -> AbstractContextManager[ReviewServer]:
    return served(ReviewServer(ReviewSession(output)))
