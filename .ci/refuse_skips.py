"""Fails where pytest skipped what must run in CI: `refuse_skips.py report.xml`, a JUnit report of pytest.

A test that skips by itself when something is missing is a test that can stop running without anybody noticing. Here
only the reasons below are good ones.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

ALLOWED = (
    r"real data is not at ",  # the folder `shared` beside the checkout is not part of the repository
    r"needs a GPU",
)


def refused_skips(report: Path) -> Iterator[tuple[str, str]]:
    """(test, reason) of every skipped test whose reason is not an allowed one.

    Raises ValueError where the report holds no test at all.
    """
    cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 (pytest wrote it a moment ago)
    if not cases:
        raise ValueError(f"{report} holds no test; did pytest run?")
    for case in cases:
        for skipped in case.iter("skipped"):
            reason = skipped.get("message", "")
            # Pytest reports expected failures as skipped too; those did run.
            is_expected_failure = skipped.get("type") == "pytest.xfail"
            if not is_expected_failure and not any(re.match(allowed, reason) for allowed in ALLOWED):
                yield f"{case.get('classname')}::{case.get('name')}", reason


def main(report: Path) -> int:
    if os.environ.get("CI") != "true":
        return 0
    refused = list(refused_skips(report))
    for test, reason in refused:
        print(f"{test} was skipped: {reason}", file=sys.stderr)
    if refused:
        print(f"{len(refused)} test(s) that CI must run were skipped", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
