"""Ranks leave their process group cleanly."""

from helpers import two_ranks


def test_no_thread_of_gloo_outlives_the_process_group(tmp_path):
    """A thread that releases a tensor while the interpreter shuts down aborts the rank, after its work is done."""
    printed = two_ranks.run(
        tmp_path,
        """
import vlm_agent.training.train  # imports most of what a training run imports

assert ranks.gathered([str(rank)]) == ["0", "1"]
before = gloo_threads()
ranks.leave()
print(len(before) > 0, gloo_threads())
""",
    )
    assert printed == ["True []\n"] * 2
