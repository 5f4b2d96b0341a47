"""`vlm-agent score --report`: a page about predictions and the changes between two runs, without a model."""

import json
import re
import shutil
from collections import Counter

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving

from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.cli.score import names_of
from vlm_agent.evaluation.predictions import predictions_for, read_predictions, write_predictions
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
    assert "By the five_points scorer" in html


def became_right(html):
    return html.partition('id="wrong_to_right"')[2].partition("</section>")[0]


def test_against_another_run_it_shows_what_flipped(folder):
    page = folder / "page.html"
    against = folder / "epoch_1" / "predictions.parquet"
    assert main(arguments(folder, "--against", against, "--report", page, "--shards", folder / "shards")) == OK
    html = page.read_text(encoding="utf-8")
    assert "3 steps in 3 episodes became right" in html
    assert became_right(html).count("<figure ") == 3
    assert "epoch_1 (predictions)" in html
    assert str(against) in html


def test_the_page_shows_the_requested_number_of_steps_that_changed(folder):
    page, against = folder / "page.html", folder / "epoch_1" / "predictions.parquet"
    options = ("--against", against, "--report", page, "--shards", folder / "shards", "--flips", 2)
    assert main(arguments(folder, *options)) == OK
    html = page.read_text(encoding="utf-8")
    assert "3 steps in 3 episodes became right" in html
    assert "Wrong before, right now: 2 of 3 steps" in html
    assert became_right(html).count("<figure ") == 2


def test_scores_comparison_and_page_judge_each_step_once_per_scorer(folder, monkeypatch):
    judged = Counter()
    names = {id(dialect): name for name, dialect in dialects.DIALECTS.items()}

    def counting(dialect, table, judge=dialects.Dialect.judge):
        judged[names[id(dialect)]] += len(table)
        return judge(dialect, table)

    monkeypatch.setattr(dialects.Dialect, "judge", counting)
    against = folder / "epoch_1" / "predictions.parquet"
    report = ("--report", folder / "page.html", "--shards", folder / "shards")
    assert main(arguments(folder, "--against", against, *report, "--dialect", "five_points")) == OK
    steps = sum(len(tiny.episode(number)) for number in range(3))
    assert judged == dict.fromkeys(("official", "strict", "five_points"), 2 * steps)


@pytest.mark.parametrize(
    ("alone", "message"), [("--report page.html", "--report needs --shards"), ("--shards shards", "add --report FILE")]
)
def test_a_page_needs_the_screens(folder, alone, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments(folder, *alone.split()))
    assert stopped.value.code == USAGE
    assert message in capsys.readouterr().err


@pytest.fixture
def served(folder):
    """The evaluation of a served model, beside the predictions of `folder`; the folder of its output."""
    tiny.write_shards(folder / "test_shards", [tiny.episode(number) for number in range(3)], "test")
    with serving(lambda number, body: Reply("press enter")) as (url, _):
        words = ["evaluate", "--endpoint", url, "--agent.model", "vlm", "--shards", str(folder / "test_shards")]
        assert main([*words, "--split", "test", "--controls", "no_history", "--output", str(folder / "served")]) == OK
    return folder / "served"


def test_an_evaluated_run_is_called_what_its_evaluation_calls_it(folder, served, capsys):
    page, of_server = folder / "page.html", served / "predictions.parquet"
    report = ["--report", str(page), "--shards", str(folder / "test_shards")]
    capsys.readouterr()
    assert main(["score", str(of_server), *report]) == OK
    terminal = capsys.readouterr().out
    assert "vlm: overall, %" in terminal
    assert "trained" not in terminal
    html = page.read_text(encoding="utf-8")
    assert "<h1>vlm</h1>" in html
    assert "trained" not in html
    assert main(["score", str(served / "predictions_no_history.parquet")]) == OK
    assert "no history: overall, %" in capsys.readouterr().out


def test_runs_of_one_name_have_the_names_of_their_folders_as_well(folder, served, capsys):
    page, other = folder / "page.html", folder / "copy"
    shutil.copytree(served, other)
    report = ["--report", str(page), "--shards", str(folder / "test_shards")]
    of_both = [str(path / "predictions.parquet") for path in (served, other)]
    assert main(["score", of_both[0], "--against", of_both[1], *report]) == OK
    assert "served (vlm) minus copy (vlm)" in " ".join(capsys.readouterr().out.split())
    html = page.read_text(encoding="utf-8")
    assert "served (vlm)" in html
    assert "copy (vlm)" in html


def test_runs_of_folders_of_one_name_have_what_distinguishes_them(tmp_path):
    """RUN/SEED/evaluation is the usual place."""
    of = [tmp_path / run / seed / "evaluation" / "predictions.parquet" for run, seed in (("a_1", "0"), ("b_1", "0"))]
    assert names_of(of, ["llama", "llama"]) == ["a_1 (llama)", "b_1 (llama)"]
    assert names_of(of, ["llama", "qwen"]) == ["llama", "qwen"]
    seeds = [tmp_path / "a_1" / seed / "evaluation" / "predictions.parquet" for seed in ("0", "1")]
    assert names_of(seeds, ["llama", "llama"]) == ["a_1/0 (llama)", "a_1/1 (llama)"]
    assert names_of(seeds, [None, None]) == ["a_1/0 (predictions)", "a_1/1 (predictions)"]


def test_a_control_of_another_agent_is_not_shown_as_the_own_one(folder, served, capsys):
    other = folder / "copy"
    shutil.copytree(served, other)
    own, foreign = (path / "predictions_no_history.parquet" for path in (served, other))
    capsys.readouterr()
    assert main(["score", str(served), "--against", str(own)]) == OK
    assert "vlm minus no history: partial" in " ".join(capsys.readouterr().out.split())
    assert main(["score", str(served), "--against", str(foreign)]) == OK
    assert "served (vlm) minus copy (no history)" in " ".join(capsys.readouterr().out.split())


def test_the_folder_of_an_evaluation_is_scored_with_its_groups(folder):
    tiny.write_shards(folder / "test_shards", [tiny.episode(number) for number in range(3)], "test")
    (folder / "groups.json").write_text(json.dumps({"memory_goals": [tiny.episode(1).id]}))
    with serving(lambda number, body: Reply("press enter")) as (url, _):
        words = ["evaluate", "--endpoint", url, "--agent.model", "vlm", "--shards", str(folder / "test_shards")]
        words += ["--groups", str(folder / "groups.json"), "--controls", "no_history"]
        assert main([*words, "--split", "test", "--output", str(folder / "served")]) == OK
    scores = folder / "scores.json"
    assert main(["score", str(folder / "served"), "--output", str(scores)]) == OK
    assert json.loads(scores.read_text())["official"]["memory_goals"]["episodes"] == 1


def test_a_file_with_other_episodes_than_its_evaluation_scored_is_refused(served, capsys):
    path = served / "predictions.parquet"
    rows = read_predictions(path)
    write_predictions(path, [row for row in rows if row.episode_id != rows[0].episode_id])
    capsys.readouterr()
    assert main(["score", str(served)]) == FAILED
    printed = capsys.readouterr()
    assert f"{path} has 2 episodes, but metrics.json beside it is of 3; move the predictions to" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("wrong", ["against", "shards"])
def test_bad_input_is_found_before_anything_is_printed_or_written(folder, wrong, capsys):
    missing, page = folder / "nowhere", folder / "new" / "page.html"
    paths = {"against": folder / "epoch_1", "shards": folder / "shards"} | {wrong: missing}
    words = arguments(folder, *(word for name, path in paths.items() for word in (f"--{name}", path)))
    assert main([*words, "--report", str(page), "--output", str(folder / "new.json")]) == FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert str(missing) in printed.err
    assert not page.parent.exists()
    assert not (folder / "new.json").exists()


def test_a_damaged_plan_beside_the_predictions_is_named(folder, served, capsys):
    (served / "plan.json").write_text("[]")
    assert main(["score", str(served / "predictions.parquet")]) == FAILED
    error = capsys.readouterr().err
    assert f"{served / 'plan.json'} is damaged" in error
    assert "move it" in error
