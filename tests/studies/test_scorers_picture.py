"""The picture of README has the figures of the scorers."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))

from studies.scorers.__main__ import picture, rows  # noqa: E402


def test_the_picture_is_drawn_from_the_scorers():
    found = rows()
    assert picture(found) == (ROOT / "docs/scorers.svg").read_text(encoding="utf-8"), "python -m studies.scorers --draw"
    assert round(found["ui_s1"]["step_success"], 1) == 44.1 and round(found["agentcpm_ac"]["step_success"], 1) == 77.7
