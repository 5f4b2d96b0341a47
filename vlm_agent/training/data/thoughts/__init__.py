"""The texts of CoAT in a run: which each step has, and their tokens, from columns alone."""

from vlm_agent.training.data.thoughts.columns import sentence_texts
from vlm_agent.training.data.thoughts.lengths import TextTokens, count_texts

__all__ = ["TextTokens", "count_texts", "sentence_texts"]
