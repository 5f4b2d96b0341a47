"""Scoring: which steps are right under each published rule, and all metrics computed from these verdicts."""
