"""Ranks leave their process group cleanly."""

from helpers.training import two_ranks


def test_no_thread_of_gloo_outlives_the_process_group(tmp_path):
    """A thread that releases a tensor while the interpreter shuts down aborts the rank, after its work is done."""
    printed = two_ranks.run(
        tmp_path,
        """
import vlm_agent.training.train  # imports most of what a training run imports

assert (ranks.number(), ranks.count()) == (rank, 2)
assert ranks.gathered([str(rank)]) == ["0", "1"]
before = gloo_threads()
ranks.leave()
print(len(before) > 0, gloo_threads())
""",
    )
    assert printed == ["True []\n"] * 2


def test_ranks_that_chose_unlike_precisions_are_refused(tmp_path):
    """`training.bf16: auto` on nodes of two kinds: each rank chooses by its own device."""
    printed = two_ranks.run(
        tmp_path,
        """
from vlm_agent.errors import TrainingError
from vlm_agent.training.engine import refuse_unlike_precisions

refuse_unlike_precisions(True)
refuse_unlike_precisions(False)
try:
    refuse_unlike_precisions(rank == 1)
except TrainingError as error:
    print(error)
ranks.leave()
""",
    )
    assert len(printed) == 2
    assert all("training.bf16: auto" in of_rank for of_rank in printed)
