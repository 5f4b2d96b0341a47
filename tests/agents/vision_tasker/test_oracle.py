"""The whole agent, with a planner that always names the right element: its prompts and what it reads from pixels are
enough to complete a task. `python -m studies.vision_tasker.oracle` measures 25."""

import pytest

from studies.vision_tasker.oracle import online_row


@pytest.mark.slow
def test_a_task_is_completed_from_pixels_where_the_planner_names_the_right_element(tmp_path):
    row = online_row(1, tmp_path)
    assert row["successes"] == 1
