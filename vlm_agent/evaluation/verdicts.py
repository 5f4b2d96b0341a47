"""From predictions to verdicts: which steps are right, by each scorer that was asked for."""

from collections.abc import Sequence

import numpy as np

from vlm_agent.evaluation.dialects import judge
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.step_table import StepTable

SCORERS = ("official", "strict")
"""The dialects that every result is shown by."""


def verdicts(steps: StepTable | Sequence[Prediction], scorers: Sequence[str] = SCORERS) -> dict[str, np.ndarray]:
    """Whether each prediction is right, bool (N,), by each of `scorers`; no action is wrong by all.

    ValueError naming the dialects there are where one of `scorers` is none.
    """
    table = steps if isinstance(steps, StepTable) else StepTable.of(steps)
    return {scorer: judge(table, scorer) for scorer in scorers}
