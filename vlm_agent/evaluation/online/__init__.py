"""Online evaluation: success rates on seeded tasks on simulated phones, with a trace of every task."""

from vlm_agent.evaluation.online.evaluate import AGENT, AT_ONCE, EXPERT, ONLINE, evaluate_online

__all__ = ["AGENT", "AT_ONCE", "EXPERT", "ONLINE", "evaluate_online"]
