"""The review of an annotation: a page on this machine to accept and edit texts (`vlm-agent annotate --review`).

`session.py` is what a review shows and stores, `server.py` the HTTP server, `page/` the page.
"""

from vlm_agent.annotation.review.server import review

__all__ = ["review"]
