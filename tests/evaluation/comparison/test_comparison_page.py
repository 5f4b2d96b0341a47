"""The table of a comparison and its page, from real evaluations of two served models."""

import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.comparison.page import _cell, _differences, print_table, write_page
from vlm_agent.evaluation.comparison.results import results_of
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, Stages
from vlm_agent.evaluation.scoring.measures import paired_proportions
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.files import read_checked, write_checked


def test_each_agent_is_in_the_block_of_its_kind_in_the_table_and_on_the_page(two_servers):
    content = results_of(two_servers, {}, {})
    terminal, page = StringIO(), two_servers.layout.output / "comparison.html"
    print_table(content, Console(file=terminal, width=120))
    assert terminal.getvalue().count("prompted") == 2
    assert "trained" not in terminal.getvalue()
    write_page(page, content, two_servers.layout.shards)
    html = page.read_text(encoding="utf-8")
    for name in ("Enter", "End"):
        assert html.index("Prompted: the model") < html.index(f'<th scope="row">{name}')
    assert "Trained on the demonstrations" not in html


def test_the_texts_that_each_agent_reads_are_on_the_page_once(two_servers):
    content = results_of(two_servers, {}, {})
    for key, about in content["agents"].items():
        row = about["rows"]["0"] | {"texts": {"screen descriptions": f"origin of {key}"}}
        about["rows"] = {"0": row, "1": row}
    write_page(two_servers.layout.output / "comparison.html", content, two_servers.layout.shards)
    html = (two_servers.layout.output / "comparison.html").read_text(encoding="utf-8")
    assert [html.count(f"screen descriptions: origin of {key}") for key in content["agents"]] == [1, 1]


def of_agents(pairs):
    """`comparison.json` as far as tables of differences read it. `pairs`: (seed, official, its interval)."""
    agents = {
        key: {"name": name, "block": "trained", "rows": {str(seed): {} for seed, *_ in pairs}}
        for key, name in (("a", "First"), ("b", "Second"))
    }
    strict = {"difference": 0.0, "interval": None}
    rows = [
        {
            "first": "a",
            "second": "b",
            "seed": seed,
            "official": dict(difference=value, interval=edges),
            "strict": strict,
        }
        for seed, value, edges in pairs
    ]
    return {"agents": agents, "pairs": rows}


def test_an_interval_is_that_of_the_seed_that_has_the_figure():
    rows = [
        {"figures": {"side effects": None}, "intervals": {"side effects": None}},
        {"figures": {"side effects": 4.0}, "intervals": {"side effects": [1.0, 9.0]}},
    ]
    assert _cell(rows, "side effects") == {"value": 4.0, "low": 1.0, "high": 9.0}


def test_a_difference_of_one_seed_has_its_interval_in_both_directions():
    cells = _differences(of_agents([(0, 5.0, [1.0, 9.0])]))
    assert cells["b", "a"]["official"] == {"value": 5.0, "low": 1.0, "high": 9.0, "decided": True}
    assert cells["a", "b"]["official"] == {"value": -5.0, "low": -9.0, "high": -1.0, "decided": True}
    assert cells["b", "a"]["strict"] == {"value": 0.0, "low": None, "high": None, "decided": False}


def test_a_difference_of_several_seeds_has_the_lowest_and_the_highest_one():
    cells = _differences(of_agents([(0, 5.0, [1.0, 9.0]), (1, 1.0, [-3.0, 5.0])]))
    assert cells["b", "a"]["official"] == {"value": 3.0, "low": 1.0, "high": 5.0, "decided": False}


def test_a_difference_is_decided_only_if_the_intervals_of_all_seeds_are_on_the_same_side_of_0():
    cells = _differences(of_agents([(0, 5.0, [1.0, 9.0]), (1, -5.0, [-9.0, -1.0])]))
    assert not cells["b", "a"]["official"]["decided"]
    cells = _differences(of_agents([(0, -5.0, [-9.0, -1.0]), (1, -4.0, [-8.0, -2.0])]))
    assert cells["b", "a"]["official"]["decided"] and cells["a", "b"]["official"]["decided"]
    assert not _differences(of_agents([(0, 5.0, [1.0, 9.0]), (1, 5.0, None)]))["b", "a"]["official"]["decided"]


def test_the_terminal_has_the_differences_and_the_tokens_read_and_written(two_servers):
    content = results_of(two_servers, {}, {})
    content["agents"]["enter"]["rows"]["0"]["costs"] |= {"tokens read": 1234.4, "tokens written": 6.2}
    terminal = StringIO()
    print_table(content, Console(file=terminal, width=160))
    printed = terminal.getvalue()
    assert "Paired differences, points" in printed
    assert "End − Enter" in printed
    assert printed.index("Paired differences") < printed.rindex("success")
    assert "1,234 + 6" in printed
    assert "– + –" not in printed  # of an endpoint that reports no usage


def with_successes(stages: Stages, folder: Path, enter: list[bool | None], end: list[bool | None]) -> Stages:
    shutil.copytree(stages.layout.output, folder)
    stages = replace(stages, layout=replace(stages.layout, output=folder))
    for key, successes in (("enter", enter), ("end", end)):
        path = stages.layout.of(ONLINE, key, 0) / "online.json"
        content = read_checked(path, "")
        tasks = [
            {"task": f"general/test/{number}", "runs": {AGENT: {"success": success}}}
            for number, success in enumerate(successes)
        ]
        write_checked(path, content | {"tasks": tasks})
    return stages


def test_success_is_compared_on_the_same_tasks(two_servers, tmp_path):
    enter, end = [True, False, False, False, True], [False, True, True, True, None]
    content = results_of(with_successes(two_servers, tmp_path / "copy", enter, end), {}, {})
    (pair,) = content["pairs"]
    assert (pair["first"], pair["second"]) == ("enter", "end")
    assert pair["success"] == {
        "difference": 50.0,  # of the four tasks that both judges could judge
        "interval": pytest.approx(paired_proportions(3, 1, 4)),
        "gained": 3,
        "lost": 1,
        "tasks": 4,
    }
    assert _differences(content)["enter", "end"]["success"]["value"] == -50.0


def test_success_without_a_task_that_both_judges_could_judge_has_no_difference(two_servers, tmp_path):
    content = results_of(with_successes(two_servers, tmp_path / "copy", [True, None], [None, True]), {}, {})
    assert _differences(content)["end", "enter"]["success"]["value"] is None
    print_table(content, Console(file=StringIO(), width=120))


def test_agents_are_compared_by_every_scorer_of_the_benchmark(two_servers, tmp_path):
    """The paper's own scorer of AitZ or AndroidControl had a column, and no paired differences."""
    stages = with_successes(two_servers, tmp_path / "copy", [True], [False])
    for key in ("enter", "end"):
        path = stages.layout.of(OFFLINE, key, 0) / "metrics.json"
        content = read_checked(path, "")
        scores = score(path.with_name("predictions.parquet"), scorers=("official", "strict", "agentcpm"))
        write_checked(path, content | {AGENT: content[AGENT] | scores})
    content = results_of(stages, {}, {})
    differences = _differences(content)["end", "enter"]
    assert list(differences) == ["official", "strict", "agentcpm", "success"]
    rows = [content["agents"][key]["rows"]["0"]["figures"]["agentcpm"] for key in ("enter", "end")]
    assert differences["agentcpm"]["value"] == pytest.approx(rows[1] - rows[0])
