"""The expert's notes: why it acts (`reasons.py`), and what remains to be done, its plan (`remaining.py`)."""

from vlm_agent.simulator.thoughts.reasons import Cause, Reason, name_of, think_text, with_texts
from vlm_agent.simulator.thoughts.remaining import MAX_LINES, with_remaining

__all__ = ["MAX_LINES", "Cause", "Reason", "name_of", "think_text", "with_remaining", "with_texts"]
