"""The examples of docs/environments.md run as they are, and are short."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
EXAMPLES = dict(re.findall(r"^## (\w+)$.*?^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_at_most_20_lines(name):
    assert len(EXAMPLES[name].splitlines()) <= 20


def run(name):
    names = {}
    exec(compile(EXAMPLES[name], f"{PAGE.name}: {name}", "exec"), names)  # noqa: S102 (our own page)
    return names


def test_the_example_of_gymnasium_solves_a_task(capsys):
    run("Gymnasium")
    assert " 1.0 complete []" in capsys.readouterr().out
