"""`vlm-agent evaluate --online`: what it writes, and what it does not take."""

import json
from dataclasses import dataclass

import pytest

from vlm_agent.cli import FAILED, OK, evaluate, main
from vlm_agent.episodes import Action
from vlm_agent.evaluation.online.runs import Scripted
from vlm_agent.training.recipe import LanguageRecipe


@dataclass
class Source:
    place = "here"
    language = LanguageRecipe()

    def described(self):
        return {"weights": "a"}

    def load(self):
        return Scripted((Action.press("home"),))


def test_success_is_written_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "_source", lambda _: Source())
    given = ["--checkpoint", "RUN", "--tasks", "2", "--seed", "3", "--workers", "2", "--no-controls"]
    assert main(["evaluate", "--online", *given, "--output", str(tmp_path / "out")]) == OK
    content = json.loads((tmp_path / "out" / "online.json").read_text())
    assert content["about"]["seed"] == 3
    assert [row["overall"]["success"] for row in content["runs"].values()] == [0, 100, 0]
    said = capsys.readouterr().out
    assert "Success on 2 tasks" in said
    assert "expert" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--online", "--checkpoint", "R", "--shards", "S"], "--shards is for recorded episodes"),
        (
            ["--online", "--checkpoint", "R", "--shard-index", "0", "--shard-count", "2"],
            "--shard-index is for recorded",
        ),
        (["--online", "--checkpoint", "R", "--constrained"], "--constrained is for recorded"),
        (["--online", "--finish"], "--finish is for recorded"),
        (["--online"], "either --checkpoint"),
        (["--checkpoint", "R", "--shards", "S", "--tasks", "3"], "--tasks is for --online"),
        (["--checkpoint", "R", "--shards", "S", "--seed", "0"], "--seed is for --online"),
    ],
)
def test_recorded_episodes_and_phones_are_not_mixed(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["evaluate", *arguments, "--output", str(tmp_path / "out")])
    assert refused.value.code == FAILED
    assert message in capsys.readouterr().err
