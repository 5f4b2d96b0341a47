"""Predictions of other programs: a table of episode id, step and action, scored against recorded episodes.

`tables.py` reads CSV, JSONL and Parquet, `answers.py` reads a row, `joined.py` joins the rows with the recorded steps
into a file of `evaluation/predictions.py`, from which everything else is computed as after `vlm-agent evaluate`.
docs/evaluation.md describes the columns.
"""

from vlm_agent.evaluation.foreign.joined import ForeignPredictions, join
from vlm_agent.evaluation.foreign.tables import is_foreign

__all__ = ["ForeignPredictions", "is_foreign", "join"]
