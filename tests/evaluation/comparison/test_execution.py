"""Running a stage: a server that does not start fails the stages that ask it, and no other."""

import http.client
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from vlm_agent.evaluation.comparison.execution import Runner
from vlm_agent.evaluation.comparison.records import Records
from vlm_agent.evaluation.comparison.settings import Endpoint, read_comparison
from vlm_agent.evaluation.comparison.stages import SERVED, Layout, Stage, Stages
from vlm_agent.models.serving import is_ready

ROOT = Path(__file__).parents[3]
SERVER = """
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_DELETE(self):
        os._exit(1)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_that_does_not_start_fails_its_stage_and_the_next_one_runs(tmp_path, monkeypatch):
    """The served folder has no model, so the real server ends by itself."""
    monkeypatch.chdir(ROOT)
    stages = Stages(read_comparison(ROOT / "eval/comparisons/five_systems.yaml", {}), Layout(tmp_path))
    asking = next(stage for stage in stages if stage.served is not None)
    records, console = Records(tmp_path), Console(record=True, width=300)
    (tmp_path / "runs" / f"{SERVED}_0" / "model").mkdir(parents=True)
    (tmp_path / "runs" / f"{SERVED}_0" / "model" / "config.json").write_text("{}")
    with Runner(stages, records, console) as runner:
        assert runner.run(asking) == 1
        assert runner.run(Stage("catalogue", ("recipes",))) == 0
    assert records.why_not_done(asking) == f"{asking.name} failed with status 1; see {records.log(asking)}"
    assert "`transformers serve` did not start" in records.log(asking).read_text()
    assert "`transformers serve` did not start" in console.export_text()


def test_a_command_that_does_not_serve_fails_the_stage_that_asks_and_is_its_record(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    comparison, own = (
        read_comparison(ROOT / "eval/comparisons/d_pot_table_5.yaml", {}),
        Endpoint("", "m", "none {port}"),
    )
    stages = Stages(comparison, Layout(tmp_path, tmp_path / "shards"), endpoint=own)
    records, console = Records(tmp_path), Console(record=True, width=300)
    with Runner(stages, records, console) as runner:
        assert runner.run(asking := next(iter(stages))) == 1
    assert "`none {port}` did not start" in console.export_text()
    assert records.by_stage([asking])[asking.name]["command"] == "none {port}"


def test_a_server_that_died_is_started_again_for_the_next_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = shlex.join([sys.executable, "-c", SERVER, "{port}"])
    comparison = read_comparison(ROOT / "eval/comparisons/d_pot_table_5.yaml", {})
    stages = Stages(comparison, Layout(tmp_path, tmp_path / "shards"), endpoint=Endpoint("", "m", command))
    asking = next(iter(stages))
    with Runner(stages, Records(tmp_path), Console(record=True)) as runner:
        assert runner._serve(asking, command)
        first = runner._endpoint.url
        assert runner._serve(asking, command) and runner._endpoint.url == first
        connection = http.client.HTTPConnection(urlsplit(first).netloc)
        connection.request("DELETE", "/")
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
        connection.close()
        assert not is_ready(first)
        assert runner._serve(asking, command)
        assert is_ready(runner._endpoint.url)
