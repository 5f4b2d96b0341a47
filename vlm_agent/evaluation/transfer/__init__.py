"""Transfer: models that were trained on different data, each scored on every subset of the same episodes.

Auto-UI's figure 5 (Zhang and Zhang 2023) is such a matrix: a model for each subset of AITW, by the five subsets.
"""

from vlm_agent.evaluation.transfer.folders import Evaluation, read_evaluations
from vlm_agent.evaluation.transfer.matrix import TransferMatrix, transfer_matrix
from vlm_agent.evaluation.transfer.page import transfer_table, write_transfer

__all__ = [
    "Evaluation",
    "TransferMatrix",
    "read_evaluations",
    "transfer_matrix",
    "transfer_table",
    "write_transfer",
]
