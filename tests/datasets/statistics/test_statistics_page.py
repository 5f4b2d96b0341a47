"""The page and the tables show the statistics; a goal stays text."""

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers.data.made_episodes import ACTIONS, made_episode
from rich.console import Console

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.statistics.page import conversion_counts, write_page
from vlm_agent.datasets.statistics.summary import TokenBudget, read_columns, summarise
from vlm_agent.datasets.statistics.tables import print_statistics
from vlm_agent.episodes import Action, Episode

EVIL = '<script>alert("pwned")</script> & [bold]more'
COUNTED = {"steps_read": 30, "steps_written": 20, "steps_quarantined": 7, "steps_left_out": 3, "episodes_written": 4}
TOKENS = TokenBudget("[my] recipe.yaml", 1000, {"general": np.array([900, 1001, 1002]), "single": np.array([5])})


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.text += " "

    def handle_data(self, data):
        self.text += data

    @property
    def ids(self):
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


@pytest.fixture
def dataset(tmp_path):
    back, done = Action.press("back"), Action.complete()
    made = [
        (made_episode("1", actions=ACTIONS), "train", EVIL),
        (made_episode("2", actions=(back, done)), "test", EVIL.upper()),
        (made_episode("3", actions=(back, done)), "test", "something else"),
        (made_episode("4", "single", (Action.tap(0.5, 0.5), done), (64, 32)), "train", "tap it"),
    ]
    files = []
    for subset in ("general", "single"):
        its = [(episode, split, goal) for episode, split, goal in made if episode.subset == subset]
        with ShardWriter(tmp_path / f"{subset}.parquet") as writer:
            for episode, split, goal in its:
                writer.write(Episode(episode.id, subset, goal, episode.steps), split)
        files.append({"shard": f"{subset}.parquet", "subset": subset, "episodes_written": len(its)})
    write_manifest(tmp_path, {"files": files} | COUNTED)
    return ShardDataset(tmp_path)


@pytest.fixture
def page(dataset, tmp_path):
    output = tmp_path / "new" / "page.html"
    statistics = summarise(read_columns(dataset))
    write_page(output, statistics, dataset.manifest, TOKENS, {"shards": "data/<aitw>", "split": "test"})
    return output.read_text(encoding="utf-8")


def test_a_goal_is_shown_and_never_run(page):
    assert "script" not in {tag for tag, _ in Page(page).tags}
    assert EVIL.upper() in Page(page).text


def test_the_page_needs_nothing_else(page):
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", page)


def test_every_section_is_there(page):
    assert Page(page).ids == {
        *(
            "conversion",
            "episodes",
            "lengths",
            "leaks",
            "tokens",
            "token-charts",
            "actions",
            "gestures",
            "sizes",
            "typed",
        )
    }


def test_the_figures_are_those_of_the_shards(page):
    text = " ".join(Page(page).text.split())
    assert "on this page 4 episodes, 14 steps" in text
    assert "steps quarantined 7" in text
    assert "test 2 1 50.0 % 2 1 50.0 %" in text  # goals, seen in train, episodes, with such a goal
    assert "general 900 1,001 968 1,002 2 66.7 %" in text
    assert "40 × 24 12 85.7" in text


def test_a_page_without_tokens_leaks_or_episodes_is_complete(dataset, tmp_path):
    empty = summarise(read_columns(ShardDataset(dataset.directory, split="validation")))
    write_page(tmp_path / "page.html", empty, dataset.manifest, None, {"shards": "x"})
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not page.ids & {"tokens", "leaks"}
    assert "0 episodes, 0 steps" in page.text


def test_a_page_is_the_same_every_time(dataset, page, tmp_path):
    statistics = summarise(read_columns(dataset))
    write_page(
        tmp_path / "again.html", statistics, dataset.manifest, TOKENS, {"shards": "data/<aitw>", "split": "test"}
    )
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_counts_of_files_are_summed_and_missing_counts_are_not_shown():
    files = [{"steps_read": 3, "steps_written": 2}, {"steps_read": 5}]
    assert conversion_counts({"files": files}) == {"steps_read": 8, "files": 2}
    assert conversion_counts({"files": files, "steps_read": 9}) == {"steps_read": 9, "files": 2}
    assert conversion_counts({"files": []}) == {"files": 0}


def test_the_tables_fit_a_terminal_and_have_the_same_content(dataset):
    console = Console(width=80)
    with console.capture() as capture:
        print_statistics(console, summarise(read_columns(dataset)), TOKENS)
    text = capture.get()
    for words in ("Episodes / steps", "1 / 8", "impossible", "64 × 32", "median", "Goals in train", "> 1,000"):
        assert words in text
    assert "[my] recipe.yaml" in text
    assert re.search(r"test +2 +1 +2 +1 +50.0", text)
    assert "…" not in text


def test_the_tables_leave_out_leaks_where_there_are_none_to_find(dataset):
    console = Console(width=80)
    with console.capture() as capture:
        print_statistics(console, summarise(read_columns(ShardDataset(dataset.directory, split="train"))))
    assert "Goals seen" not in capture.get()
    assert "Tokens" not in capture.get()


def test_the_template_is_installed_with_the_package():
    settings = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "*.jinja" in settings["tool"]["setuptools"]["package-data"]["vlm_agent.datasets.statistics"]
