"""Errors of libraries are explained in one line."""

import pytest

from vlm_agent.models.pretrained import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("Unrecognized model.\nIt should have a model_type"), "Unrecognized model."),
        (OSError("\n  no such file \n"), "no such file"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_reason_of_an_error_is_its_first_line_or_its_kind(error, reason):
    assert reason_of(error) == reason
