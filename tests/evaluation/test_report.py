"""The report is one file that needs nothing else, and what a model says stays text."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from gold_steps import answered
from PIL import Image

from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.evaluation.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.gallery import choose
from vlm_agent.evaluation.metrics import score
from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.evaluation.report import write_report

EVIL = '<script>alert("pwned")</script>'
FACTS = {"run": "demo & more", "date": "2024-05-01"}


class Shards:
    """What the report asks of a ShardDataset."""

    directory = Path("shards")

    def __init__(self, episodes):
        self._episodes = episodes
        self.ids = tuple(episode.id for episode in episodes)

    def __getitem__(self, index):
        return self._episodes[index]


class Page(HTMLParser):
    """Collects tags with their attributes, and the text outside of <style>."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._open = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def episodes():
    rng = np.random.default_rng(0)
    screens = rng.integers(0, 255, (3, 64, 32, 3), np.uint8)
    actions = (Action.tap(0.2, 0.2), Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.complete())
    steps = tuple(Step(screen, action) for screen, action in zip(screens, actions, strict=True))
    goals = ["buy milk", f"a goal {EVIL}", "turn on wifi", "open maps"]
    return [Episode(f"e{k}", "single", goal, steps) for k, goal in enumerate(goals)]


@pytest.fixture(scope="module")
def predictions(episodes):
    rows = []
    for k, episode in enumerate(episodes):
        gold = [step.action for step in episode.steps]
        predicted = [None, *gold[1:]] if k == 1 else [*gold[:2], Action.press("home")] if k == 2 else gold
        rows += predictions_for(episode, [EVIL if action is None else "some words" for action in predicted], predicted)
    return rows


@pytest.fixture(scope="module")
def page(episodes, predictions, tmp_path_factory):
    output = tmp_path_factory.mktemp("report") / "report.html"
    groups = {"memory_goals": {"e1"}}
    runs = {
        "trained": score(predictions, groups),
        "grey_screens": score(constant_predictions(predictions, Action.complete()), groups),
        "blind_ceiling": blind_ceiling(predictions, groups),
    }
    write_report(output, runs, predictions, Shards(episodes), FACTS, worst=2, random=1)
    return Page(output.read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_elsewhere(page):
    assert not page.all("script")
    assert not page.all("link")
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)
    assert not re.search(r"https?://|@import|url\(", "".join(str(tag) for tag in page.tags))


def test_goals_and_model_words_are_shown_as_text(page):
    assert f"a goal {EVIL}" in page.text
    assert page.text.count(EVIL) == 2  # the goal and the words of its first step
    assert "demo & more" in page.text


def test_each_step_has_a_lazy_picture_that_opens(page):
    images = page.all("img")
    assert len(images) == 3 * 3
    assert all(image["loading"] == "lazy" and image["alt"] for image in images)
    data = base64.b64decode(images[0]["src"].removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(data)).size == (300, 600)


def test_every_run_and_every_column_with_steps_is_in_the_table(page):
    for word in ("trained", "grey screens", "blind ceiling", "overall", "single", "memory goals", "no action of the"):
        assert word in page.text
    assert "web shopping" not in page.text


def test_the_figures_are_those_of_the_score(page, predictions):
    overall = score(predictions)["official"]["overall"]
    low, high = overall["interval"]
    assert f"{overall['partial_match']:.1f}{low:.1f}–{high:.1f}" in page.text


def test_the_worst_episodes_come_first_and_no_episode_twice(predictions):
    worst, others = choose(predictions, worst=2, random=5, seed=0)
    assert worst == ["e1", "e2"]
    assert sorted(others) == ["e0", "e3"]
    assert choose(predictions, 1, 2, seed=3) == choose(predictions[::-1], 1, 2, seed=3)


def test_an_episode_that_is_not_in_the_shards_is_named_and_no_half_report_is_left(episodes, predictions, tmp_path):
    with pytest.raises(ValueError, match="episode e1 is in the predictions but not in shards"):
        write_report(tmp_path / "r.html", {"trained": score(predictions)}, predictions, Shards(episodes[:1]), FACTS)
    assert list(tmp_path.iterdir()) == []


def test_a_run_where_nothing_parses_and_a_run_of_nothing_are_reported_too(episodes, predictions, tmp_path):
    silent = answered(predictions, [None] * len(predictions))
    write_report(tmp_path / "silent.html", {"silent": score(silent)}, silent, Shards(episodes), FACTS)
    write_report(tmp_path / "empty.html", {"empty": score([])}, [], Shards([]), FACTS)
    assert "nan" not in Page((tmp_path / "empty.html").read_text(encoding="utf-8")).text
