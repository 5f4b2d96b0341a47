"""The table of a comparison and its page, from real evaluations of two served models."""

from io import StringIO

from rich.console import Console

from vlm_agent.comparison.page import print_table, write_page
from vlm_agent.comparison.results import results_of


def test_each_agent_has_its_kind_in_the_table_and_on_the_page(two_servers):
    content = results_of(two_servers, {}, {})
    assert {key: about["kind"] for key, about in content["agents"].items()} == dict.fromkeys(
        ("enter", "end"), "served model"
    )
    terminal, page = StringIO(), two_servers.layout.output / "comparison.html"
    print_table(content, Console(file=terminal, width=120))
    assert terminal.getvalue().count("served model") == 2
    assert "trained" not in terminal.getvalue()
    write_page(page, content, two_servers.layout.shards)
    html = page.read_text(encoding="utf-8")
    for name in ("Enter", "End"):
        assert f'{name}<span class="range">served model</span>' in html
    assert "Trained on the demonstrations" not in html
