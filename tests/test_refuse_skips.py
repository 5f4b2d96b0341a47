"""What CI says about skipped tests."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / ".ci" / "refuse_skips.py"))


@pytest.fixture
def verdict(tmp_path, monkeypatch):
    """The exit status for a report with these test cases."""
    monkeypatch.setenv("CI", "true")

    def run(cases):
        report = tmp_path / "report.xml"
        report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        return SCRIPT["main"](report)

    return run


def _case(skip):
    return f'<testcase classname="tests.test_a" name="test_b">{skip}</testcase>'


@pytest.mark.parametrize(
    ("skip", "status"),
    [
        ("", 0),
        ('<skipped type="pytest.skip" message="real data is not at /somewhere/shared" />', 0),
        ('<skipped type="pytest.xfail" message="a known fault" />', 0),
        ('<skipped type="pytest.skip" message="could not import \'transformers\'" />', 1),
        ('<skipped type="pytest.skip" message="" />', 1),
    ],
)
def test_a_skip_fails_unless_its_reason_is_allowed(skip, status, verdict, capsys):
    assert verdict(_case(skip)) == status
    assert ("tests.test_a::test_b was skipped" in capsys.readouterr().err) is (status == 1)


def test_a_run_without_tests_is_no_success(verdict):
    with pytest.raises(ValueError, match="holds no test"):
        verdict("")


def test_outside_ci_skips_are_fine(verdict, monkeypatch):
    monkeypatch.setenv("CI", "")
    assert verdict(_case('<skipped type="pytest.skip" message="slow" />')) == 0
