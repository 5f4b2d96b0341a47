"""`vlm-agent score --report`: a page about predictions and the changes between two runs, without a model."""

import re
from collections import Counter

import pytest
from helpers import tiny

from vlm_agent.cli import OK, USAGE, main
from vlm_agent.evaluation.predictions import predictions_for, write_predictions
from vlm_agent.evaluation.scoring import dialects


@pytest.fixture
def folder(tmp_path):
    """Shards, and predictions of an agent that learned to end between epoch_1 and epoch_2."""
    episodes = [tiny.episode(number) for number in range(3)]
    tiny.write_shards(tmp_path / "shards", episodes)
    for name, knows_the_end in (("epoch_1", False), ("epoch_2", True)):
        rows = []
        for episode in episodes:
            gold = [step.action for step in episode.steps]
            rows += predictions_for(episode, ["…"] * len(episode), gold if knows_the_end else [*gold[:-1], None])
        (tmp_path / name).mkdir()
        write_predictions(tmp_path / name / "predictions.parquet", rows)
    return tmp_path


def arguments(folder, *more):
    return ["score", str(folder / "epoch_2" / "predictions.parquet"), *map(str, more)]


def test_the_page_has_the_scores_and_the_requested_number_of_episodes(folder, capsys):
    page = folder / "new" / "page.html"
    report = ("--report", page, "--shards", folder / "shards", "--episodes", 2)
    assert main(arguments(folder, *report, "--dialect", "five_points")) == OK
    assert f"Wrote {page}" in capsys.readouterr().out.replace("\n", "")
    html = page.read_text(encoding="utf-8")
    assert len(re.findall('<article class="episode"', html)) == 2
    assert "By the five points scorer" in html


def test_against_another_run_it_shows_what_flipped(folder):
    page = folder / "page.html"
    against = folder / "epoch_1" / "predictions.parquet"
    assert main(arguments(folder, "--against", against, "--report", page, "--shards", folder / "shards")) == OK
    html = page.read_text(encoding="utf-8")
    assert "3 steps in 3 episodes became right" in html
    flips = html.partition("Wrong before, right now")[2]
    assert flips.count("<figure ") == 3
    assert "epoch 1" in html
    assert str(against) in html


def test_scores_comparison_and_page_judge_each_step_once_per_scorer(folder, monkeypatch):
    judged = Counter()

    def counting(table, name, judge=dialects.judge):
        judged[name] += len(table)
        return judge(table, name)

    monkeypatch.setattr(dialects, "judge", counting)
    against = folder / "epoch_1" / "predictions.parquet"
    report = ("--report", folder / "page.html", "--shards", folder / "shards")
    assert main(arguments(folder, "--against", against, *report, "--dialect", "five_points")) == OK
    steps = sum(len(tiny.episode(number)) for number in range(3))
    assert judged == dict.fromkeys(("official", "strict", "five_points"), 2 * steps)


@pytest.mark.parametrize(
    ("alone", "message"),
    [("--report page.html", "--report needs --shards"), ("--shards shards", "add --report FILE")],
)
def test_a_page_needs_the_screens(folder, alone, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments(folder, *alone.split()))
    assert stopped.value.code == USAGE
    assert message in capsys.readouterr().err
