"""The languages of released agents against stored answers: `tests/data/agents_2025` has a part of the shared files."""

import json
from pathlib import Path

from golden.agents_2025_languages import languages, rows_of

from vlm_agent.action_languages import LANGUAGES

COPIES = Path(__file__).parents[1] / "data/agents_2025/languages.jsonl.gz"


def test_every_stored_answer_and_text_agrees(capsys):
    assert languages([str(COPIES)]) == 0, capsys.readouterr().out[-2000:]
    assert len({row["language"] for row in rows_of(COPIES)}) == 18


def test_every_answer_and_text_of_the_reference_files_agrees(shared, capsys):
    files = sorted(map(str, (shared / "data/agents_2025/languages").glob("*.jsonl.gz")))
    assert len(files) == 19
    assert languages(files) == 0, capsys.readouterr().out[-2000:]
    assert "6721 compared, 0 different" in capsys.readouterr().out


def test_a_different_answer_is_printed_and_fails(tmp_path, capsys):
    rows = [row for row in rows_of(COPIES) if row.get("check") == "exact"][:3]
    rows[1]["action"] = {"kind": "recents"}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert languages([str(path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("3 compared, 1 different\n") and rows[1]["id"] in printed


def test_the_files_cover_registered_languages():
    assert {row["language"] for row in rows_of(COPIES)} <= set(LANGUAGES)
