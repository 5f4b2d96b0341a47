"""The expert's texts: why it acts (`coat.py`, CoAT's four texts), and what remains to be done (`plans.py`, D-PoT)."""

from vlm_agent.simulator.thoughts.coat import Cause, Reason, name_of, think_text, with_texts
from vlm_agent.simulator.thoughts.plans import MAX_LINES, with_plans

__all__ = ["MAX_LINES", "Cause", "Reason", "name_of", "think_text", "with_plans", "with_texts"]
