"""The report in Chromium, from a file: pictures come when they are near, filters filter, nothing is fetched.

Needs `apt-get install chromium`; continuous integration has it and refuses to skip.
"""

import random

import pytest
from helpers.pages.browser import EXECUTABLE, Browser
from helpers.pages.report_pages import EVIL, FACTS, Shards, made_episodes

from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.evaluation.report import Earlier, write_report
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.metrics import score

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="chromium is not installed")

EPISODES, STEPS = 1000, 3
FLIPS = 20
SHOWN = "[...document.querySelectorAll('figure[data-gold]')].filter((figure) => !figure.closest('[hidden]'))"


def answers(episodes, right, seed):
    rng = random.Random(seed)
    rows = []
    for episode in episodes:
        wrong = (None, Action.press("home"), Action.tap(0.9, 0.9))
        actions = [step.action if rng.random() < right else rng.choice(wrong) for step in episode.steps]
        rows += predictions_for(episode, [EVIL] * len(episode), actions)
    return rows


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    episodes = made_episodes(EPISODES)
    now, before = answers(episodes, 0.7, seed=0), answers(episodes, 0.5, seed=1)
    path = tmp_path_factory.mktemp("report") / "report.html"
    earlier = Earlier("before", before, compare(before, now))
    write_report(path, {"now": score(now)}, now, Shards(episodes), FACTS, episodes=EPISODES, earlier=earlier)
    return path, now


@pytest.fixture
def browser(report, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.open(report[0].as_uri())
        yield browser


def pictures(browser):
    """How many there are, and how many of them can be seen."""
    loaded = "[...document.querySelectorAll('.screen img')].filter((image) => image.complete && image.naturalWidth)"
    return browser.run("document.querySelectorAll('.screen img').length"), browser.run(f"{loaded}.length")


def choose(browser, field, value):
    browser.run(
        f"(() => {{ const field = document.getElementById('{field}'); field.value = '{value}';"
        "field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def test_all_is_there_and_only_what_is_near_is_drawn(browser):
    assert browser.run("document.querySelectorAll('.whole .episode').length") == EPISODES
    assert browser.run(f"{SHOWN}.length") == EPISODES * STEPS + FLIPS
    assert 0 < pictures(browser)[0] < 50
    assert browser.log == []


def test_pictures_load_on_scrolling_and_unload_again(browser):
    browser.run("document.querySelectorAll('.episode')[600].scrollIntoView()")
    there = "document.querySelectorAll('.episode')[600].querySelectorAll('img').length"
    browser.wait_for(f"{there} === {STEPS}")
    browser.wait_for("[...document.querySelectorAll('.screen img')].every((image) => image.naturalWidth === 24)")
    drawn, seen = pictures(browser)
    assert drawn == seen < 300
    browser.run("window.scrollTo(0, 0)")
    browser.wait_for(f"{there} === 0")
    assert browser.log == []


def test_marks_lie_over_the_picture_and_boxes_on_demand(browser):
    browser.run("document.querySelector('.episode').scrollIntoView()")
    browser.wait_for("document.querySelector('.screen svg') !== null")
    over = (
        "(() => { const [a, b] = ['img', 'svg'].map((tag) => document.querySelector('.screen ' + tag)"
        ".getBoundingClientRect()); return a.width > 50 && a.width === b.width && a.top === b.top; })()"
    )
    assert browser.run(over)
    display = "getComputedStyle(document.querySelector('.screen path.box')).display"
    assert browser.run(display) == "none"
    browser.run("document.getElementById('show-boxes').click()")
    assert browser.run(display) == "inline"


def test_subset_filters_episodes(browser):
    choose(browser, "subset", "install")
    subsets = f"[...new Set({SHOWN}.map((figure) => figure.closest('.episode').dataset.subset))]"
    assert browser.run(subsets) == ["install"]
    assert browser.run("document.querySelectorAll('.whole .episode:not([hidden])').length") == EPISODES // 5
    choose(browser, "subset", "")
    assert browser.run(f"{SHOWN}.length") == EPISODES * STEPS + FLIPS


def test_gold_action_and_verdict_filter_steps(browser, report):
    _, rows = report
    expected = score(rows)
    choose(browser, "gold", "type")
    in_episodes = f"{SHOWN}.filter((figure) => figure.closest('.whole'))"
    assert browser.run(f"{in_episodes}.length") == sum(row.gold.name == "type" for row in rows) == EPISODES // 2
    choose(browser, "gold", "")
    choose(browser, "verdict", "right strict")
    right = round(sum(row["steps"] * row["strict"] / 100 for row in expected["by_step"]))
    assert browser.run(f"{in_episodes}.length") == right
    choose(browser, "verdict", "wrong strict")
    assert browser.run(f"{in_episodes}.length") == EPISODES * STEPS - right
    choose(browser, "verdict", "unparsed")
    assert browser.run(f"{in_episodes}.length") == sum(row.predicted is None for row in rows)


def test_filters_combine_are_counted_and_load_their_pictures(browser):
    choose(browser, "goal", "number 77")
    choose(browser, "gold", "swipe")
    browser.run("document.getElementById('filters').scrollIntoView()")
    shown = browser.run(f"{SHOWN}.filter((figure) => figure.closest('.whole')).length")
    assert shown == 1 + 10
    changed = browser.run(f"{SHOWN}.filter((figure) => figure.closest('.flips')).length")
    assert browser.run("document.getElementById('count').textContent") == (
        f"11 of {EPISODES} episodes with 11 steps, {changed} of {FLIPS} changed steps"
    )
    browser.wait_for("document.querySelectorAll('.screen img').length > 0")


def test_model_output_is_not_executed_and_nothing_is_fetched(browser, report):
    browser.run("document.querySelector('.flips .episode').scrollIntoView()")
    browser.wait_for("document.querySelectorAll('.flips img').length > 0")
    assert browser.run("document.querySelector('.flips .agent code').textContent") == EVIL
    assert browser.run("document.querySelectorAll('img[onerror]').length") == 0
    assert {url for url in browser.requests if not url.startswith("data:")} == {report[0].as_uri()}
    assert browser.log == []


def test_without_scripts_every_picture_is_there(report, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.without_scripts()
        browser.open(report[0].as_uri())
        document = browser.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        found = {
            name: len(browser.call("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"])
            for name, selector in {"pictures": ".screen img", "filters": "#filters .scripted:not([hidden])"}.items()
        }
        assert found == {"pictures": EPISODES * STEPS + FLIPS, "filters": 0}


def test_on_a_phone_nothing_but_tables_is_wider_than_the_window(report, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=2, mobile=True)
        browser.open(report[0].as_uri())
        assert browser.run("document.documentElement.scrollWidth") == 390


def test_printing_draws_what_is_shown(browser):
    choose(browser, "goal", "number 77")
    shown = browser.run(f"{SHOWN}.length")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    # Pictures of hidden episodes may not be removed yet.
    assert browser.run(f"{SHOWN}.filter((figure) => figure.querySelector('.screen img')).length") == shown
    browser.run("dispatchEvent(new Event('afterprint'))")
    browser.run("window.scrollTo(0, 0)")
    browser.wait_for(f"document.querySelectorAll('.screen img').length < {shown}")


TOP_OF_PICTURE = "document.querySelector('.screen').getBoundingClientRect().top + scrollY"
COVERED = """[...document.querySelectorAll('nav a')].map((link) => {
  link.click();
  const heading = document.querySelector(link.getAttribute('href')).querySelector('h2, h3');
  const bar = document.getElementById('filters');
  const edge = getComputedStyle(bar).position === 'sticky' ? Math.max(0, bar.getBoundingClientRect().bottom) : 0;
  const top = heading.getBoundingClientRect().top;
  const last = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
  return top < Math.min(edge, 200) || (top > innerHeight / 2 && !last) ? link.textContent : '';
}).filter((name) => name)"""


@pytest.fixture(scope="module", params=[1, 60])
def small_report(request, tmp_path_factory):
    """One with every run and many facts, of this number of episodes; its runs differ."""
    episodes = made_episodes(request.param)
    now, before = answers(episodes, 0.7, seed=0), answers(episodes, 0.5, seed=1)
    path = tmp_path_factory.mktemp("report") / "flips.html"
    earlier = Earlier("before", before, compare(before, now))
    facts = {f"fact {number}": "words " * 30 for number in range(8)}
    runs = {name: score(now) for name in ("now", "grey screens", "no history", "most frequent", "blind ceiling")}
    write_report(path, runs, now, Shards(episodes), facts, earlier=earlier)
    return path


@pytest.mark.parametrize(("width", "most"), [(1280, 1500), (420, 2600)])
def test_the_first_picture_is_on_the_first_screens(small_report, tmp_path, width, most):
    with Browser(tmp_path / "profile", (width, 900)) as browser:
        browser.open(small_report.as_uri())
        assert 0 < browser.run(TOP_OF_PICTURE) < most


@pytest.mark.parametrize("width", [1280, 1000, 700])
def test_a_link_leads_to_a_heading_that_the_filters_do_not_cover(small_report, tmp_path, width):
    with Browser(tmp_path / "profile", (width, 900)) as browser:
        browser.open(small_report.as_uri())
        assert browser.run(COVERED) == []
