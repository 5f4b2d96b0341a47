"""An output folder with one of each kind; its texts are hostile."""

import json
import shutil

import pytest
from PIL import Image

from vlm_agent.evaluation.online.runs import BASELINES, EXPERT, play
from vlm_agent.files import CHECKSUM, write_checked
from vlm_agent.simulator.demonstrations import simulated_tasks

EVIL = "</title><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"


@pytest.fixture(scope="session")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "trace"
    play(EXPERT, BASELINES[EXPERT], simulated_tasks(1, 0)[0], folder)
    return folder


@pytest.fixture
def output(played, tmp_path):
    output = tmp_path / "out"
    trace = shutil.copytree(played, output / "online" / "agent" / "00000")
    heading = json.loads((trace / "trace.json").read_text())
    content = {key: value for key, value in heading.items() if key != CHECKSUM}
    write_checked(trace / "trace.json", content | {"goal": EVIL})
    score = {"overall": {"successes": 7, "tasks": 9}}
    (output / "online" / "online.json").write_text(json.dumps({"about": {"label": "agent"}, "runs": {EVIL: score}}))
    overall = {"partial_match": 67.55, "interval": [64.35, 70.65]}
    evaluation = output / "evaluation"
    evaluation.mkdir()
    (evaluation / "metrics.json").write_text(json.dumps({"trained": {"official": {"overall": overall}}}))
    (evaluation / "report.html").write_text("<!doctype html><h1>Report</h1><script>window.ran = 1</script>")
    (output / "comparison").mkdir()
    (output / "comparison" / "comparison.json").write_text(json.dumps({"name": "five", "agents": {"first": {}}}))
    (output / "damaged").mkdir()
    (output / "damaged" / "metrics.json").write_text("{")
    Image.new("RGB", (40, 20)).save(output / "agent.gif")
    return output
