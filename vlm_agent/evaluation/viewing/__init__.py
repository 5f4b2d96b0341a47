"""Pages on this machine that show an output folder and ask an agent about one screen (`vlm-agent view OUT`).

`catalogue.py` lists what a folder contains, `asking.py` asks the agent one question, `server.py` is the HTTP server,
`page/` has the pages.
"""

from vlm_agent.evaluation.viewing.server import view

__all__ = ["view"]
