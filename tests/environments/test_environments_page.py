"""The examples of docs/environments.md are short. That of Gymnasium runs here, the others beside their tests."""

import pytest
from helpers.pages.environments import EXAMPLES, run_example


@pytest.mark.parametrize("heading", EXAMPLES)
def test_an_example_has_at_most_20_lines(heading):
    assert len(EXAMPLES[heading].splitlines()) <= 20


def test_the_example_of_gymnasium_solves_a_task(capsys):
    pytest.importorskip("gymnasium")
    run_example("Gymnasium")
    assert " 1.0 complete []" in capsys.readouterr().out
