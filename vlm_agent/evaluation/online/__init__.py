"""Success on phones: seeded tasks that an agent does itself, counted, timed, kept as traces that can be replayed."""

from vlm_agent.evaluation.online.evaluate import AGENT, AT_ONCE, EXPERT, ONLINE, evaluate_online

__all__ = ["AGENT", "AT_ONCE", "EXPERT", "ONLINE", "evaluate_online"]
