"""Published numbers: as printed, never two splits in one table, and marked only where a run is on the same split."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers.pages.report_pages import FACTS, Page, Shards, made_episodes

from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.evaluation.report import write_report
from vlm_agent.evaluation.report.published import on_the_same_split, published_tables, split_sentences
from vlm_agent.evaluation.scoring.dialects import DIALECTS
from vlm_agent.evaluation.scoring.metrics import score

TABLES = published_tables()
BENCHMARKS = Path(__file__).parents[3] / "eval"
PAPERS = ("android-in-the-zoo", "auto-ui", "d-pot", "smartphone-assistant", "visiontasker")
SUBSETS = ("general", "install", "google_apps", "single", "web_shopping")
AGREES = {"published_split": {"agrees": ["general", "install"], "differs": {}}}
IN_PART = {"published_split": {"agrees": ["general"], "differs": {"install": "2 episodes here, 3 published"}}}
DIFFERS = {"published_split": {"agrees": [], "differs": {"general": "2 episodes here, 3 published"}}}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_rows_are_complete_and_name_known_dialects_and_benchmarks(table):
    names = {yaml.safe_load(path.read_text(encoding="utf-8"))["name"] for path in BENCHMARKS.glob("*.yaml")}
    assert table.rows
    assert all(len(row.values) == len(table.columns) and row.where for row in table.rows)
    largest = 100 if table.unit == "%" else 1e6
    assert all(0 <= value <= largest for row in table.rows for value in row.values if value is not None)
    assert table.dialect is None or table.dialect in DIALECTS
    assert table.benchmark is None or table.benchmark in names


def test_each_table_has_a_title_of_its_own():
    assert len({table.title for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", [t for t in TABLES if {"overall", *SUBSETS} <= {*t.columns}], ids=lambda t: t.title)
def test_overall_is_the_mean_of_the_subsets_as_far_as_papers_round(table):
    for row in table.rows:
        values = dict(zip(table.columns, row.values, strict=True))
        if None not in values.values():
            mean = sum(values[subset] for subset in SUBSETS) / 5
            assert values["overall"] == pytest.approx(mean, abs=0.2), row


def test_every_number_is_in_a_paper(shared):
    text = "\n".join((shared / "papers" / f"{name}.txt").read_text(encoding="utf-8") for name in PAPERS)
    text += (shared / "data/agents_2025/published_numbers.csv").read_text(encoding="utf-8")
    printed = set(re.findall(r"\d+(?:\.\d+)?", text))
    for table in TABLES:
        for row in table.rows:
            for value in row.values:
                forms = {f"{value:g}", f"{value:.1f}", f"{value:.2f}"} if value is not None else {"0"}
                assert forms & printed, (table.title, row, value)


def test_auto_uis_numbers_are_recorded_with_what_its_code_does_otherwise(tmp_path):
    """Zhang and Zhang (2023), tables 2 to 5 and 7 and figure 4, and cooelf/Auto-GUI at 26ea0f2 and 0b37eba."""
    tables = [table for table in TABLES if table.paper.startswith("Auto-UI")]
    printed = " ".join(row.where for table in tables for row in table.rows)
    assert all(number in printed for number in ("Table 2", "Tables 2, 3, 4", "Table 3", "Table 5", "4, 7", "Figure 4"))
    (main,) = [table for table in tables if table.title == "AITW, Auto-UI's split"]
    notes = " ".join(main.notes)
    for fact in ("over all steps", "normalised gold", "July 2024", "74.22", "blip2_t5_instruct", "blip2-opt-2.7b"):
        assert fact in notes
    separate = next(row.values for row in main.rows if row.system == "Auto-UI separate")
    assert (separate[0], round(sum(separate[1:]) / 5, 2)) == (74.07, 74.22)
    assert main.notes[0] in " ".join(reported(tmp_path, {}).text.split())


def test_a_run_on_the_test_episodes_of_a_benchmark_is_next_to_its_published_results():
    on_aitz = on_the_same_split(TABLES, {"benchmark": "AitZ", **AGREES})
    assert on_aitz == {"AitZ, its test episodes": ()}


def test_a_run_on_the_test_episodes_of_some_subsets_is_next_to_tables_of_subsets_alone():
    about = {"benchmark": "AITW, Auto-UI's split", **IN_PART}
    marked = on_the_same_split(TABLES, about)
    assert marked["AITW, Auto-UI's split"] == ["general"]
    assert "AITW, Auto-UI's split, by kind of action" not in marked
    same, reasons = split_sentences(TABLES, about)
    assert same.startswith("On the split of this run in general: AITW, Auto-UI's split;")
    assert reasons == "Subsets that differ or are not known: install (2 episodes here, 3 published)."


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"benchmark": None, **AGREES},
        {"benchmark": "Simulated phone", **AGREES},
        {"benchmark": "AitZ"},
        {"benchmark": "AitZ", **IN_PART},
        {"benchmark": "AitZ", **DIFFERS},
    ],
)
def test_a_run_on_other_data_is_not_compared_with_published_results(about):
    assert on_the_same_split(TABLES, about) == {}
    assert split_sentences(TABLES, about)[0] == "No table is known to be on the split of this run."


def reported(tmp_path, about, shards=None):
    episodes = made_episodes(2)
    shards = Shards(episodes) if shards is None else shards
    gold = [row for e in episodes for row in predictions_for(e, ["x"] * len(e), [s.action for s in e.steps])]
    write_report(tmp_path / "r.html", {"a": score(gold) | {"about": about}}, gold, shards, FACTS)
    return Page((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_the_report_has_every_table_as_printed(tmp_path):
    page = reported(tmp_path, {})
    for table in TABLES:
        shown = page.table(kind="published", title=table.title)
        for row in table.rows:
            cells = [cell[0] for cell in shown[row.system].values()]
            assert cells == ["–" if value is None else f"{value:.{table.decimals}f}" for value in row.values]


def test_the_report_marks_published_results_on_the_split_of_the_run(tmp_path):
    assert "No table is known to be on the split of this run" in reported(tmp_path, {}).text
    page = reported(tmp_path, {"benchmark": "AITW standard", **AGREES})
    assert "On the split of this run: AITW, standard split." in " ".join(page.text.split())
    assert page.text.count("the split of this run") == 2


@pytest.mark.parametrize(("source", "device"), [("aitw", "simulated_208x448"), ("trace", "pixel"), ("other", "pixel")])
def test_data_that_are_neither_aitw_nor_aitz_have_no_published_numbers(tmp_path, source, device):
    episodes = [replace(episode, device_type=device) for episode in made_episodes(2)]
    html = reported(tmp_path, {"benchmark": "AITW standard", **AGREES}, Shards(episodes, source)).text
    assert "ublished numbers" not in html and "Auto-UI" not in html


@pytest.mark.parametrize("source", ["aitw", "aitz"])
def test_published_numbers_come_last_and_folded(tmp_path, source):
    page = reported(tmp_path, {}, Shards(made_episodes(2), source))
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    places = [html.index(f'id="{name}"') for name in ("score", "worst", "scores", "confusion", "published")]
    assert places == sorted(places)
    folded = html[places[-1] :].partition("<details>")[2].partition("</section>")[0]
    assert folded.count('data-kind="published"') == len(TABLES)
    assert "No table is known to be" in page.text
