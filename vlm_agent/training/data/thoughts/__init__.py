"""The texts of CoAT and the plans in a run: which each step has, and their tokens, from columns alone."""

from vlm_agent.training.data.thoughts.columns import sentence_texts
from vlm_agent.training.data.thoughts.lengths import TextTokens, count_segments, count_texts
from vlm_agent.training.data.thoughts.plans import PlanTokens, count_plans, plan_lines

__all__ = [
    "PlanTokens",
    "TextTokens",
    "count_plans",
    "count_segments",
    "count_texts",
    "plan_lines",
    "sentence_texts",
]
