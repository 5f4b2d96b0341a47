"""The dialects of AndroidControl and GUI-Odyssey agree with the published scorers."""

import gzip
import json
from pathlib import Path

import agents_2025 as golden
import pytest

DATA = Path(__file__).parents[1] / "data/agents_2025"
FILES = sorted((DATA / "dialects").glob("*.jsonl.gz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.split(".")[0])
def test_the_copied_cases_agree(file, capsys):
    assert golden.main(["dialects", str(file)]) == 0
    assert " 0 different" in capsys.readouterr().out


@pytest.mark.slow
def test_all_cases_and_all_totals_agree(shared, capsys):
    folder = shared / "data/agents_2025"
    assert golden.main(["dialects", *map(str, sorted((folder / "dialects").glob("*.jsonl.gz")))]) == 0
    files = [str(folder / "whole_set" / name) for name in ("agent_a.jsonl.gz", "agent_a.totals.json")]
    assert golden.main(["whole_set", *files]) == 0


def test_the_totals_and_the_verdicts_of_one_agent_agree(capsys):
    files = [str(DATA / name) for name in ("agent_a.jsonl.gz", "agent_a.totals.json")]
    assert golden.main(["whole_set", *files]) == 0
    assert "9 dialects" in capsys.readouterr().out


def test_a_wrong_verdict_is_printed_and_fails(tmp_path, capsys):
    cases = golden.read(str(FILES[0]))
    case = next(case for case in cases if case["by_action"] and case["theirs"]["exact"])
    case["theirs"]["exact"] = False
    with gzip.open(tmp_path / "cases.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(case) + "\n")
    assert golden.main(["dialects", str(tmp_path / "cases.jsonl.gz")]) == 1
    assert case["id"] in capsys.readouterr().out


def test_nothing_to_compare_fails(capsys):
    assert golden.main([]) == 2
    assert golden.main(["dialects"]) == 2
