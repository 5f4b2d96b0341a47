"""Verdicts on the papers' claims are computed from records: studies/claims."""

import json
import re
import sys

import pytest
import yaml

from studies.ablation.records import committed
from studies.ablation.runs import ROOT, folder_name
from studies.auto_ui.arms import ARMS
from studies.claims import __main__ as command
from studies.claims.compared import HOW, Setting
from studies.claims.tables import CLAIMS, PAGE, with_tables
from studies.coat.arms import FAMILIES, ROWS, arm_of
from studies.d_pot.arms import TABLES
from studies.smartphone_assistant import pretraining
from vlm_agent.agents.loading import agent_settings
from vlm_agent.evaluation.comparison.settings import read_comparison
from vlm_agent.evaluation.report.published import published_tables
from vlm_agent.recipe.run import read_recipe

CONTENT = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
SYSTEMS = yaml.safe_load(CLAIMS.with_name("systems.yaml").read_text(encoding="utf-8"))
RUN_HERE = [(ROOT / file, name, keys) for file, named in SYSTEMS["agents"].items() for name, keys in named.items()]


def test_the_tables_of_the_page_are_those_of_the_records():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "python -m studies.claims writes the tables of docs/papers.md"


@pytest.mark.parametrize("edit", [("| opposite |", "| undecided |"), ("−9.8 ± 4.5", "−9.8 ± 14.5"), ("+7.9", "+6.9")])
def test_a_cell_that_is_edited_by_hand_fails_the_check(tmp_path, monkeypatch, edit):
    page = tmp_path / "papers.md"
    text = PAGE.read_text(encoding="utf-8")
    page.write_text(text.replace(*edit, 1), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != text
    monkeypatch.setattr(sys, "argv", ["claims", "--check", "--page", str(page)])
    with pytest.raises(SystemExit, match=re.escape(f"-{page.read_text().splitlines()[line_of(text, edit[0])]}")):
        command.main()
    monkeypatch.setattr(sys, "argv", ["claims", "--page", str(page)])
    command.main()
    assert page.read_text(encoding="utf-8") == text


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines()) if part in line)


def test_a_correlation_holds_where_its_interval_is_above_zero():
    rows = [{"score": score, "success": success} for score, success in ((1, 2), (2, 3), (3, 5), (4, 4), (5, 7))]
    claim = {"run": "a", "score": "score"}
    found = HOW["correlation"](Setting({"a": {"checkpoints": rows}}, ""), claim, None)
    assert (found.here, found.verdict) == ("r 0.90 [0.11, 0.99] over 5 checkpoints", "holds")
    turned = [row | {"success": number % 2} for number, row in enumerate(rows)]
    assert HOW["correlation"](Setting({"a": {"checkpoints": turned}}, ""), claim, None).verdict == "undecided"
    assert HOW["correlation"](Setting({}, ""), claim, None).verdict == "not measured"


def test_a_section_without_its_table_is_an_error_in_one_line(tmp_path, monkeypatch):
    page = tmp_path / "papers.md"
    page.write_text("## Auto-UI\n")
    monkeypatch.setattr(sys, "argv", ["claims", "--page", str(page)])
    with pytest.raises(SystemExit, match="Smartphone Assistant lacks a table"):
        command.main()


def test_claims_name_arms_that_the_studies_train():
    studies = [*ARMS, *(arm_of(family, row) for family in FAMILIES for row in ROWS)]
    studies += [f"{family}, {arm}" for family in ("phone_vlm", "text") for table in TABLES.values() for arm in table]
    known = {folder_name(name) for name in studies} | {"words_read", "html_read"}
    known |= {pretraining.folder_of(name) for name in pretraining.ARMS}
    claims = [claim for claims in CONTENT["papers"].values() for claim in claims if claim["how"] == "seeds"]
    assert {claim[side] for claim in claims for side in ("better", "worse")} <= known


def record(path, **runs):
    lines = [{"run": key, "commit": commit, "figure": figure} for key, (commit, figure) in runs.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"run": "cut')
    return path


def test_runs_of_a_changed_checkout_are_not_used(tmp_path):
    found = committed(record(tmp_path / "r", one=("1234abcd", 1.0), other=("1234abcd-dirty", 2.0)))
    assert {key: run["figure"] for key, run in found.items()} == {"one": 1.0}
    assert committed(tmp_path / "none") == {}


def of_seeds(better, worse):
    arms = {"better": better, "worse": worse}
    runs = {f"{arm}_0a1b2c3d/{seed}": {"x": value} for arm, values in arms.items() for seed, value in enumerate(values)}
    setting = Setting(runs, "model", 5, key="{arm}_{digest}/{seed}")
    return HOW["seeds"](setting, {"better": "better", "worse": "worse", "path": ["x"]}, None)


@pytest.mark.parametrize(
    ("better", "worse", "here", "verdict"),
    [
        ([5, 6, 7], [1, 2, 4], "+3.7 ± 1.4", "holds"),
        ([1, 2, 4], [5, 6, 7], "−3.7 ± 1.4", "opposite"),
        ([5, 1, 4], [1, 2, 4], "+1.0 ± 6.6", "undecided"),
        ([5, 7], [1, 1], "+5.0 ± 12.7", "undecided"),
        ([5], [1, 2, 4], "+4.0", "undecided"),
        ([], [1, 2, 4], "no record", "not measured"),
        ([None], [1], "no record", "not measured"),
    ],
)
def test_a_difference_over_seeds(better, worse, here, verdict):
    found = of_seeds(better, worse)
    assert (found.here, found.verdict) == (here, verdict)


def test_of_an_arm_with_runs_of_two_recipes_the_newest_one_counts():
    runs = {"a_0a1b2c3d/0": {}, "a_0a1b2c3d/1": {}, "a_1a1b2c3d/0": {"new": 1}}
    assert Setting(runs, "model", key="{arm}_{digest}/{seed}").seeds_of("a") == {0: {"new": 1}}


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([[1, 3], [2, 4]], "holds"),
        ([[-3, -1], [-4, -2]], "opposite"),
        ([[1, 3], [-2, 4]], "undecided"),
        ([[1, 3]], "undecided"),
        ([None, None], "undecided"),
    ],
)
def test_differences_with_intervals_have_to_agree_over_seeds(intervals, verdict):
    runs = {str(seed): {"of": [{"name": "other"}, {"name": "own", "difference": 0, "interval": interval}]}
            for seed, interval in enumerate(intervals)}  # fmt: skip
    claim = {"runs": list(runs), "path": ["of", {"name": "own"}]}
    assert HOW["intervals"](Setting(runs, ""), claim, None).verdict == verdict
    assert HOW["intervals"](Setting({}, ""), claim, None).verdict == "not measured"


@pytest.mark.parametrize(
    ("right", "printed", "verdict"),
    [(3, 76.0, "not reached"), (39, 76.0, "holds"), (31, 76.0, "undecided"), (0, 1.0, "undecided")],
)
def test_a_share_against_the_number_of_the_paper(right, printed, verdict):
    claim = {"runs": ["a"], "right": ["right"], "of": ["of"]}
    assert HOW["level"](Setting({"a": {"right": right, "of": 40}}, ""), claim, printed).verdict == verdict


@pytest.mark.parametrize(
    ("better", "worse", "verdict"), [(458, 386, "holds"), (3, 400, "opposite"), (9, 9, "undecided")]
)
def test_two_shares(better, worse, verdict):
    runs = {"a": {"better": better, "worse": worse, "of": 500}}
    claim = {"run": "a"} | {name: {"right": [name], "of": ["of"]} for name in ("better", "worse")}
    found = HOW["counts"](Setting(runs, ""), claim, None)
    assert found.verdict == verdict
    assert found.here.startswith(f"{better} of 500 [")


@pytest.mark.parametrize(("lower", "verdict"), [(1, "holds"), (3, "opposite"), (2, "undecided")])
def test_two_counts(lower, verdict):
    claim = {"run": "a", "lower": ["lower"], "higher": ["higher"]}
    assert HOW["exact"](Setting({"a": {"lower": lower, "higher": 2}}, ""), claim, None).verdict == verdict


PUBLISHED = published_tables()
REPEATED = [read_comparison(path, {}) for path in sorted((ROOT / "eval/comparisons").glob("*_table_*.yaml"))]


def systems_of(comparison):
    """The systems in its rows: their names, without the subset of a model that is trained on one."""
    printed = {name for table in PUBLISHED for row in table.rows for name in (row.system, f"{row.system}, {row.where}")}
    names = (agent.name for agent in comparison.agents.values())
    return {name if name in printed else name.rpartition(", ")[0] for name in names}


def test_every_row_of_a_published_table_has_an_agent_or_a_reason_why_it_has_none():
    listed = [name for _, name, _ in RUN_HERE] + [name for names in SYSTEMS["missing"].values() for name in names]
    listed += set().union(*map(systems_of, REPEATED))
    rows = [row for table in PUBLISHED for row in table.rows]
    found = [{row.system, f"{row.system}, {row.where}"}.intersection(listed) for row in rows]
    assert [row for row, names in zip(rows, found, strict=True) if len(names) != 1] == []
    assert sorted(listed) == sorted(set().union(*found)), "each system is listed once, and is in a table"


@pytest.mark.parametrize("comparison", REPEATED, ids=[comparison.name for comparison in REPEATED])
def test_a_file_of_a_table_has_its_rows_but_those_that_nothing_or_something_else_runs(comparison):
    paper, _, number = comparison.name.rpartition(", table ")
    rows = [row for table in PUBLISHED if paper in table.paper for row in table.rows]
    rows = [row for row in rows if re.search(rf"Tables? (\d, )*{number}\b", row.where)]
    own = systems_of(comparison)
    assert own <= {name for row in rows for name in (row.system, f"{row.system}, {row.where}")}
    others = {name for names in SYSTEMS["missing"].values() for name in names} | {name for _, name, _ in RUN_HERE}
    also = others.union(*map(systems_of, REPEATED))  # a row that two tables print
    known = [own | (also if row.where.startswith("Tables") else others) for row in rows]
    names = [{row.system, f"{row.system}, {row.where}"} for row in rows]
    assert [row.system for row, here, listed in zip(rows, names, known, strict=True) if not here & listed] == []


@pytest.mark.parametrize(
    ("file", "keys"), [(file, keys) for file, _, keys in RUN_HERE], ids=[row[1] for row in RUN_HERE]
)
def test_the_agent_of_a_row_has_valid_settings(file, keys):
    if file.parent.name == "recipes":
        read_recipe(file, {name: json.dumps(value) for name, value in keys.items()})
    else:
        agent_settings(str(file), overrides=keys)
