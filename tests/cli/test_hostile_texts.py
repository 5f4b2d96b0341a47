"""Texts of traces, shards, servers and command lines cannot operate the terminal of the person who reads them."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving

from vlm_agent.cli import main
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading, TraceStep
from vlm_agent.episodes import Action

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egoal"
FORBIDDEN = [chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E)]


@pytest.fixture
def run(capsys):
    """Runs a command and returns what it printed, which holds no control character."""

    def _run(*words: object) -> str:
        with suppress(SystemExit):
            main(list(map(str, words)))
        streams = capsys.readouterr()
        printed = streams.out + streams.err
        assert [letter for letter in FORBIDDEN if letter in printed] == []
        return printed

    return _run


def test_of_a_trace(tmp_path, run):
    with TraceWriter(tmp_path / "trace", Heading("1", HOSTILE, HOSTILE, HOSTILE)) as trace:
        picture = trace.screen(0, tiny.episode(0).steps[0].screen.pixels, None)
        trace.step(TraceStep(0, picture.name, HOSTILE, None, HOSTILE, Action.complete()))
        trace.end("complete", HOSTILE)
    assert "goal" in run("inspect", tmp_path / "trace")
    run("record", "--trace", tmp_path / "trace")


def test_of_shards_and_of_a_server(tmp_path, run):
    episode = replace(tiny.episode(0), id=HOSTILE, goal=HOSTILE)
    shards = tiny.write_shards(tmp_path / "shards", [episode], "test")
    refusal = json.dumps({"error": {"message": HOSTILE}}, ensure_ascii=False).encode()
    with serving(lambda n, body: Reply("press enter") if n == 0 else Reply(refusal, 410)) as (url, _):
        # One call at a time, or the refusals could arrive before the only answer and end the evaluation.
        model = ("--agent.model", json.dumps(HOSTILE), "--agent.concurrency", 1, "--controls", "none")
        printed = run("evaluate", "--endpoint", url, *model, "--shards", shards, "--output", tmp_path / "out")
        assert "could not answer" in printed
        served = ("--endpoint", url, "--model", HOSTILE)
        run("annotate", shards, *served, "--output", tmp_path / "annotated", "--split", "test")
    run("score", tmp_path / "out")
    run("inspect", shards)
    run("inspect", shards, "--draw", HOSTILE, "--output", tmp_path / "sheet.png")
    run("view", tmp_path / f"no{HOSTILE}")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", HOSTILE),
        ("score", HOSTILE),
        ("status", HOSTILE),
        ("evaluate", "--agent", HOSTILE, "--shards", HOSTILE, "--output", HOSTILE),
        ("train", "--config", HOSTILE),
        ("convert", "--source", HOSTILE, "--input", HOSTILE, "--output", HOSTILE),
        ("inspect", f"--{HOSTILE}"),
        (HOSTILE,),
        ("act", "--device", HOSTILE),
    ],
    ids=lambda words: words[0] if words[0].isascii() else "command",
)
def test_of_the_command_line(words, run):
    run(*words)
