"""The strings of Auto-UI's published preprocessing, for a real episode and for made-up ones."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT, COPIES = ROOT / "tests/golden/auto_ui.py", ROOT / "tests/data/auto_ui"


def compare(*files: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *files], capture_output=True, text=True, check=False)


def test_all_strings_of_the_copies_agree():
    done = compare(COPIES / "strings.json", COPIES / "made.json.gz")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count(" 0 different") == 2


def test_all_strings_of_the_reference_files_agree(shared):
    done = compare(shared / "data/golden/auto_ui.json", shared / "data/golden/auto_ui_made.json.gz")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "auto_ui.json: 32 compared, 0 different" in done.stdout
    assert "auto_ui_made.json.gz: 5028 compared, 0 different" in done.stdout


def test_a_difference_is_printed_and_fails(tmp_path):
    content = json.loads((COPIES / "strings.json").read_text())
    content[5]["target"] = content[5]["target"].replace("0.541", "0.542")
    path = tmp_path / "strings.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    done = compare(path)
    assert done.returncode == 1
    assert "normalise_gestures=False screen_description=False step 1 target" in done.stdout
    assert "0.542" in done.stdout and "32 compared, 1 different" in done.stdout


@pytest.mark.parametrize(("name", "content"), [("empty.json", "[]"), ("table.csv", "")])
def test_a_file_without_strings_fails(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert compare(path).returncode == 1
