"""`vlm-agent score` of predictions that another program wrote."""

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import tiny

from vlm_agent.action_languages import default_language, language_settings
from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, Screen
from vlm_agent.evaluation.predictions import predictions_for, write_predictions

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Score predictions of another program")[2]
ACTIONS = (
    Action.tap(0.25, 0.75),
    Action.swipe((0.85, 0.55), (0.15, 0.55)),
    Action.type_text("weather"),
    Action.press("enter"),
    Action.complete(),
)
HEADER = "episode_id,step,action_type,touch_y,touch_x,lift_y,lift_x,typed_text"
RIGHT = ("4,.25,.75,.25,.75,", "4,.85,.55,.15,.55,", "3,,,,,weather", "7,,,,,", "10,-1,-1,-1,-1,")


@pytest.fixture(autouse=True)
def shards(tmp_path, monkeypatch):
    """Two episodes of the split test, `a` and `b`, in the working folder."""
    monkeypatch.chdir(tmp_path)
    episodes = [tiny.episode(number, ACTIONS) for number in range(2)]
    for episode, name in zip(episodes, "ab", strict=True):
        object.__setattr__(episode, "id", name)
    return tiny.write_shards(tmp_path / "SHARDS", episodes, split="test")


def table(rows):
    """A CSV file of (episode id, step, cells)."""
    return "\n".join([HEADER, *(f"{name},{step},{cells}" for name, step, cells in rows)]) + "\n"


def all_right():
    return [(name, step, cells) for name in "ab" for step, cells in enumerate(RIGHT)]


def score(file, *more):
    return main(["score", str(file), "--shards", "SHARDS", "--output", "scores.json", *more])


def partial(scorer="strict"):
    return json.loads(Path("scores.json").read_text())[scorer]["overall"]["partial_match"]


def test_the_example_of_the_docs_runs_as_it_is_printed(tmp_path, capsys):
    episode = tiny.episode(0, ACTIONS)
    object.__setattr__(episode, "id", "9162")
    tiny.write_shards(tmp_path / "other", [episode], split="test")
    Path("mine.csv").write_text(re.search(r"```csv\n(.*?)```", SECTION, re.DOTALL)[1])
    language = default_language()
    lines = [{"episode_id": "9162", "step": step, "text": language.encode(one)} for step, one in enumerate(ACTIONS)]
    Path("answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    commands = re.findall(r"^    vlm-agent (.*)$", SECTION, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command.replace("SHARDS", "other"))) == OK
    printed = capsys.readouterr().out
    assert partial() == 80  # the empty action type is a parse failure
    assert "20.0" in printed and "step(s)" not in printed
    assert Path("report.html").read_text().count("<figure ") >= 5


def test_csv_jsonl_and_parquet_of_the_same_predictions_have_the_same_score(tmp_path):
    Path("mine.csv").write_text(table([*all_right()[:-1], ("b", 4, "11,,,,,")]))
    rows = []
    for name in "ab":
        for step, action in enumerate(ACTIONS):
            kind = 11 if (name, step) == ("b", 4) else int(action.kind)
            points = {"touch_yx": action.touch_yx, "lift_yx": action.lift_yx}
            rows.append({"episode_id": name, "step": step, "action_type": kind, "typed_text": action.text, **points})
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    pq.write_table(pa.Table.from_pylist(rows), "mine.parquet")
    found = []
    for name in ("mine.csv", "mine.jsonl", "mine.parquet"):
        assert score(name, "--dialect", "coat_box", "d_pot") == OK
        found.append(json.loads(Path("scores.json").read_text()))
    assert found[0] == found[1] == found[2]
    assert partial() == 90 and partial("coat_box") == 100


def test_the_page_shows_screens_with_errors_and_against_an_evaluation_the_changes(tmp_path, shards, capsys):
    rows = [
        row
        for episode in ShardDataset(shards)
        for row in predictions_for(episode, [""] * 5, [*(step.action for step in episode.steps[:4]), None])
    ]
    write_predictions(tmp_path / "ours.parquet", rows)
    Path("mine.csv").write_text(table(all_right()))
    assert score("mine.csv", "--against", "ours.parquet", "--report", "page.html") == OK
    page = Path("page.html").read_text()
    assert "2 steps in 2 episodes became right" in page and "complete" in page
    assert (
        json.loads(Path("scores.json").read_text())["against"]["strict"]["overall"]["partial_match"]["difference"] == 20
    )
    assert score("ours.parquet", "--against", "mine.csv") == OK
    assert "mine" in capsys.readouterr().out


def test_missing_and_surplus_steps_are_named_and_counted(capsys):
    rows = [row for row in all_right() if row[:2] not in {("a", 1), ("a", 3)}]
    Path("mine.csv").write_text(table([*rows, ("b", 5, "7,,,,,"), ("c", 0, "7,,,,,")]))
    assert score("mine.csv") == FAILED
    problem = " ".join(capsys.readouterr().err.split())
    assert "2 step(s) of 1 episode(s) (episode 'a', steps 1, 3) missing; --missing-as-wrong" in problem
    assert "2 step(s) of 2 episode(s) (episode 'b', step 5; episode 'c', step 0) in the file, but not in" in problem
    assert not Path("scores.json").exists()
    assert score("mine.csv", "--missing-as-wrong") == FAILED
    assert "missing" not in capsys.readouterr().err.partition("SHARDS")[2]
    assert score("mine.csv", "--missing-as-wrong", "--ignore-surplus") == OK
    printed = capsys.readouterr().out
    assert partial() == 80
    assert "mine.csv: 2 step(s) of 1 episode(s) (episode 'a', steps 1, 3) missing, counted as wrong" in printed
    assert "mine.csv: 2 step(s) of 2 episode(s) (episode 'b', step 5; episode 'c', step 0) not in the split" in printed
    assert json.loads(Path("scores.json").read_text())["about"]["failed_steps"] == [
        "episode a, step 1: missing",
        "episode a, step 3: missing",
    ]


def test_steps_that_count_from_1_and_ids_of_another_split_are_recognised(capsys):
    Path("mine.csv").write_text(table((name, step + 1, cells) for name, step, cells in all_right()))
    assert score("mine.csv") == FAILED
    assert "Steps count from 0, and those of the file from 1" in capsys.readouterr().err
    Path("mine.csv").write_text(table((f"x{name}", step, cells) for name, step, cells in all_right()))
    assert score("mine.csv") == FAILED
    assert "No id agrees: the file has 'xa', the shards have 'a'" in capsys.readouterr().err


def test_rows_of_episodes_that_a_limit_leaves_out_are_counted(capsys):
    Path("mine.csv").write_text(table(all_right()))
    assert score("mine.csv", "--limit", "1") == OK
    assert "5 answers to episodes of the split that are not scored" in capsys.readouterr().out
    assert json.loads(Path("scores.json").read_text())["about"]["episodes"] == 1


def test_a_benchmark_chooses_shards_episodes_and_scorers(tmp_path):
    Path("mine.csv").write_text(table(all_right()))
    Path("b.yaml").write_text("name: b\nabout: b\nsource: b\nshards: SHARDS\nlimit: 1\ndialect: five_points\n")
    assert main(["score", "mine.csv", "--benchmark", "b.yaml", "--output", "scores.json"]) == OK
    assert partial("five_points") == 100


def test_text_in_any_language_is_decoded_and_other_text_is_a_parse_failure(capsys):
    words = [*map(tiny.LANGUAGE.encode, ACTIONS[:4]), None]
    lines = [{"episode_id": name, "step": step, "text": text} for name in "ab" for step, text in enumerate(words)]
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert score("mine.jsonl", "--action-language", "binned", "bins=10") == OK
    assert partial() == 80
    lines[0]["text"], lines[1]["text"] = "I would tap", "tap at 99 99"
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert score("mine.jsonl", "--action-language", "binned", "bins=10") == OK
    assert (
        "of the answers are not an action. Example: episode 'a', step 0: answer 'I would tap'"
        in capsys.readouterr().out
    )
    assert partial() == pytest.approx(60)
    assert score("mine.jsonl", "--action-language", "pidgin") == FAILED
    assert "'pidgin' is unknown; choose one of agentcpm, aguvis, auto_ui" in capsys.readouterr().err
    assert score("mine.jsonl", "--action-language", "binned", "bin=10") == FAILED
    assert "--action-language: unknown key bin; did you mean bins?" in capsys.readouterr().err


def test_a_language_that_numbers_elements_reads_those_of_the_shards():
    language = language_settings({"name": "element_index"}).build()
    words = [language.encode(action, Screen(None, tiny.ELEMENTS)) for action in ACTIONS]
    lines = [{"episode_id": name, "step": step, "text": text} for name in "ab" for step, text in enumerate(words)]
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert score("mine.jsonl", "--action-language", "element_index") == OK
    assert partial("official") == 100


def test_a_file_of_another_program_without_shards_says_exactly_what_to_do(capsys):
    Path("mine.csv").write_text(table(all_right()))
    pq.write_table(pa.table({"episode_id": ["a"], "step": [0], "predicted": ["tap"]}), "mine.parquet")
    for name in ("mine.csv", "mine.parquet"):
        assert main(["score", name]) == FAILED
        problem = capsys.readouterr().err
        assert f"`vlm-agent score {name} --shards SHARDS --split test`" in problem
        assert "remove" not in problem
    assert score("mine.parquet") == FAILED
    problem = capsys.readouterr().err
    assert (
        "mine.parquet has no column for actions: action_type with touch_yx, lift_yx and typed_text, or text" in problem
    )
    Path("mine.json").write_text("[]")
    assert score("mine.json") == FAILED
    assert "are read from files with the ending .csv, .jsonl, .parquet" in capsys.readouterr().err


def test_options_for_other_programs_are_refused_for_an_evaluation(tmp_path, shards, capsys):
    write_predictions(tmp_path / "ours.parquet", predictions_for(ShardDataset(shards)[0], [""] * 5, [None] * 5))
    with pytest.raises(SystemExit) as refused:
        main(["score", "ours.parquet", "--split", "test"])
    assert refused.value.code == USAGE
    assert "--split is for predictions of another program" in capsys.readouterr().err
    Path("mine.csv").write_text(table(all_right()))
    with pytest.raises(SystemExit):
        score("mine.csv", "--action-language", "binned")
    assert "--action-language has no effect: the actions are in the column action_type" in capsys.readouterr().err


def test_no_message_about_a_predictions_file_advises_to_remove_it(tmp_path, capsys):
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"vlm_agent_predictions": "9"}), "mine.parquet")
    Path("broken.parquet").write_bytes(b"PAR1 and no more")
    for name in ("mine.parquet", "broken.parquet", "absent.parquet", "absent.csv"):
        for more in ([], ["--shards", "SHARDS", "--report", "page.html"]):
            assert main(["score", name, *more]) == FAILED
            problem = capsys.readouterr().err
            assert name in problem and "remove" not in problem
