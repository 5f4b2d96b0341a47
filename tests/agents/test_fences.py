"""Which answers are a markdown code fence."""

import pytest

from vlm_agent.texts.lines import in_fence


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("```\npress back\n```", "press back"),
        ("  ```json\r\npress back\r\n```\n", "press back"),
        ("~~~~\na\nb\n~~~~", "a\nb"),
        ("```\n```", ""),
        ("press back", None),
        ("I do:\n```\npress back\n```", None),
        ("```\npress back", None),
        ("```press back```", None),
        ("```\npress back\n```\n```\npress home\n```", None),
        ("```\n" * 20_000, None),
        ("```\n" + " " * 60_000 + "x", None),
    ],
)
def test_only_an_answer_that_is_one_fence_has_content(text, content):
    assert in_fence(text) == content
