"""The verdicts and scores of CoAT's published evaluator."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT, COPIES = ROOT / "tests/golden/coat.py", ROOT / "tests/data/coat"
CASES, METRICS = COPIES / "evaluator.jsonl.gz", COPIES / "metrics.json"


def compare(*files: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *files], capture_output=True, text=True, check=False)


def test_all_verdicts_and_scores_of_the_copies_agree():
    done = compare(CASES, METRICS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "394 published and 394 gold_point verdicts compared, 0 different" in done.stdout
    assert "scores of 70 episodes compared, 0 different" in done.stdout


def test_all_verdicts_and_scores_of_the_reference_files_agree(shared):
    done = compare(shared / "data/golden/coat_evaluator.jsonl.gz", shared / "data/golden/coat_metrics.json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "3000 published and 3000 gold_point verdicts compared, 0 different" in done.stdout
    assert "scores of 573 episodes compared, 0 different" in done.stdout


@pytest.mark.parametrize("verdict", ["published", "gold_point"])
def test_a_different_verdict_is_printed_and_fails(tmp_path, verdict):
    cases = [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]
    cases[7][verdict]["exact_match"] ^= True
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, cases)))
    done = compare(path, METRICS)
    assert done.returncode == 1
    assert f"case 7 ({verdict}) exact_match: published" in done.stdout and "compared, 1 different" in done.stdout


@pytest.mark.parametrize(("part", "name"), [("atomic", "STOP"), ("episode", "goal_progress")])
def test_a_different_or_missing_score_is_printed_and_fails(tmp_path, part, name):
    metrics = json.loads(METRICS.read_text())
    del metrics[part][name]
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(metrics))
    done = compare(CASES, path)
    assert done.returncode == 1
    assert f"{part} {name}: published None, here" in done.stdout


def test_a_file_without_cases_fails(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text("")
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps({"rows_of_episodes": [], "atomic": {}, "episode": {}}))
    assert compare(path, metrics).returncode == 1
    assert compare(path).returncode == 2
