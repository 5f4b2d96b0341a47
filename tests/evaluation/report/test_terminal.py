"""The comparison table fits a terminal and leaves nothing out."""

import io

from helpers.evaluation.gold_steps import answered
from rich.console import Console

from vlm_agent.episodes import Action
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.report.terminal import comparison_table
from vlm_agent.evaluation.scoring.metrics import score


def printed(table, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()


def test_it_fits_80_characters_with_every_column_and_row(world):
    groups = {"memory_goals": {"001", "006"}}
    runs = {
        "trained": score(answered(world, [row.gold for row in world]), groups),
        "most_frequent_action": score(constant_predictions(world, Action.press("home")), groups),
        "blind_ceiling": blind_ceiling(world, groups),
    }
    text = printed(comparison_table(runs))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text
    for word in ("trained", "frequent", "ceiling", "overall", "google", "install", "memory", "shopping"):
        assert word in text
    assert text.count("100.0") == 14


def test_subsets_without_episodes_are_omitted_and_groups_are_not(world):
    rows = [row for row in world if row.subset == "single"]
    groups = {"elsewhere": {"of other data"}}
    text = printed(comparison_table({"trained": score(answered(rows, [None] * len(rows)), groups)}))
    assert "elsewhere" in text and "(0" in text
    assert "single" in text
    assert "install" not in text
    assert "0.0" in text
