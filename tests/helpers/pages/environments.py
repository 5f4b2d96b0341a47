"""The examples of docs/environments.md."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "environments.md"
EXAMPLES = dict(re.findall(r"^## (\w+)\n.*?^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S))
"""Heading → its code."""


def run_example(heading):
    """Runs the code, and returns its names."""
    names = {}
    exec(compile(EXAMPLES[heading], f"{PAGE.name}: {heading}", "exec"), names)  # noqa: S102 (our own page)
    return names
