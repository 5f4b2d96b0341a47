"""The report is one self-contained file, and model output in it stays text."""

import base64
import hashlib
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered
from helpers.pages.report_pages import EVIL, FACTS, Page, Shards, made_episodes
from PIL import Image

from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions
from vlm_agent.evaluation.predictions import predictions_for, write_predictions
from vlm_agent.evaluation.report import Earlier, write_report
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.judged import judge_steps
from vlm_agent.evaluation.scoring.metrics import SHARES, score

SCORERS = ("official", "strict", "official_text")
RUNS = ("my_run", "grey screens", "blind ceiling")


@pytest.fixture(scope="module")
def episodes():
    made = made_episodes(6)
    return [made[0], replace(made[1], goal=f"a goal {EVIL}"), *made[2:]]


@pytest.fixture(scope="module")
def predictions(episodes):
    rows = []
    for k, episode in enumerate(episodes):
        gold = [step.action for step in episode.steps]
        predicted = [None, *gold[1:]] if k == 1 else [*gold[:2], Action.press("home")] if k == 2 else gold
        rows += predictions_for(episode, [EVIL if action is None else "some words" for action in predicted], predicted)
    return rows


@pytest.fixture(scope="module")
def before(predictions):
    """An earlier run: right where the later one is wrong, silent on the first episode's first step."""
    later = [row.predicted for row in predictions]
    gold = [row.gold for row in predictions]
    swapped = [None if k == 0 else gold[k] for k in range(len(later))]
    return answered(predictions, swapped)


@pytest.fixture(scope="module")
def runs(predictions):
    groups = {"memory_goals": {"e0001"}}
    return {
        "my_run": score(predictions, groups, scorers=SCORERS),
        "grey screens": score(constant_predictions(predictions, Action.complete()), groups, scorers=SCORERS),
        "blind ceiling": blind_ceiling(predictions, groups),
    }


@pytest.fixture(scope="module")
def comparison(before, predictions):
    return compare(before, predictions, scorers=SCORERS)


@pytest.fixture(scope="module")
def html(episodes, predictions, runs, before, comparison, tmp_path_factory):
    output = tmp_path_factory.mktemp("report") / "report.html"
    earlier = Earlier("epoch 1", before, comparison)
    write_report(output, runs, predictions, Shards(episodes), FACTS, episodes=3, earlier=earlier)
    return output.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_nothing_is_loaded_from_elsewhere(page):
    assert not page.all("base")
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert re.match("data:|#", attributes.get(name, "#")), (tag, attributes)
    assert not re.search(r"https?://|@import|url\(", "".join(str(tag) for tag in page.tags))


def test_its_policy_lets_only_its_own_script_run(html, page):
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_goals_and_model_output_are_shown_as_text(page):
    assert f"a goal {EVIL}" in page.text
    assert page.text.count(EVIL) == 4  # the goal and the words of its first step, in the episode and as a flip
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert len(page.all("script")) == 1
    assert "demo & more" in page.text


def test_each_step_shown_has_a_small_lazy_picture_that_opens_and_sharp_marks_over_it(page):
    images = page.all("img")
    flips = 2 + 1
    assert len(images) == 3 * 3 + flips
    assert all(image["loading"] == "lazy" and image["alt"] for image in images)
    data = base64.b64decode(images[0]["src"].removeprefix("data:image/webp;base64,"))
    assert Image.open(io.BytesIO(data)).size == (24, 48)
    overlays = [svg for svg in page.all("svg") if svg.get("viewbox") == "0 0 360 720"]
    assert len(overlays) == len(images)
    classes = [path["class"] for path in page.all("path")]
    for name in ("gold", "agent", "before", "halo", "box text", "box icon"):
        assert name in classes


def test_a_large_screen_becomes_a_thumbnail_and_many_episodes_smaller_ones(episodes, predictions, tmp_path):
    steps = tuple(replace(step, screenshot=np.zeros((1200, 600, 3), np.uint8)) for step in episodes[0].steps)
    large = [replace(episodes[0], steps=steps), *episodes[1:]]
    for count, width in ((6, 300), (101, 180)):
        write_report(tmp_path / "r.html", {"a": score(predictions)}, predictions, Shards(large), FACTS, episodes=count)
        images = Page((tmp_path / "r.html").read_text(encoding="utf-8")).all("img")
        sizes = {Image.open(io.BytesIO(base64.b64decode(image["src"].partition(",")[2]))).size for image in images}
        assert sizes == {(24, 48), (width, 2 * width)}


def test_every_number_is_that_of_the_scores(page, runs):
    """What metrics.json holds, read back from the page."""
    for run in RUNS:
        for scorer in set(SCORERS) & set(runs[run]):
            rows = runs[run][scorer]
            shown = page.table(kind="by-run", scorer=scorer, run=run)
            sets = [name for name, row in rows.items() if row["steps"]]
            for name in sets:
                counts = [str(rows[name]["episodes"]), str(rows[name]["steps"])]
                assert shown["episodes, steps"][name.replace("_", " ")] == counts
                for share in SHARES:
                    cell = shown[share.replace("_", " ")][name.replace("_", " ")]
                    assert cell == as_shown(rows[name][share], rows[name]["intervals"][share])
                partial = page.table(kind="by-set", scorer=scorer)[run][name.replace("_", " ")]
                assert partial == as_shown(rows[name]["partial_match"], rows[name]["interval"])
            assert list(shown["tap"]) == [name.replace("_", " ") for name in sets]
            for share in SHARES:
                cell = page.table(kind="by-share", scorer=scorer)[run][share.replace("_", " ")]
                assert cell == as_shown(rows["overall"][share], rows["overall"]["intervals"][share])


def test_the_metrics_of_aitz_are_those_of_the_scores(episodes, predictions, tmp_path):
    runs = {
        "my_run": score(predictions, scorers=["official", "strict", "coat_box"]),
        "silent": score(answered(predictions, [None] * len(predictions)), scorers=["official", "strict", "coat_box"]),
        "blind_ceiling": blind_ceiling(predictions),
    }
    write_report(tmp_path / "r.html", runs, predictions, Shards(episodes), FACTS, episodes=1)
    shown = Page((tmp_path / "r.html").read_text(encoding="utf-8")).table(kind="aitz", scorer="coat_box")
    for run in ("my_run", "silent"):
        for name, cell in runs[run]["aitz"]["coat_box"].items():
            assert shown[run][name.replace("_", " ")] == as_shown(cell["value"], cell["interval"])
    assert set(shown) == {"my_run", "silent"}


def test_a_run_not_judged_by_a_scorer_has_no_row_for_it(page):
    assert "blind ceiling" in page.table(kind="by-set", scorer="strict")
    assert "blind ceiling" not in page.table(kind="by-set", scorer="official_text")


def test_every_scorer_is_named_with_its_rule_and_its_source(page, runs):
    words = " ".join(page.text.split())
    for about in runs["my_run"]["scorers"].values():
        assert about["rule"] in words
        assert about["source"] in words


def test_the_differences_are_those_of_the_comparison(page, comparison):
    for scorer in SCORERS:
        shown = page.table(kind="against", scorer=scorer)
        for share in SHARES:
            cell = comparison[scorer]["overall"][share]
            assert shown[share.replace("_", " ")]["overall"] == as_points(cell["difference"], cell["interval"])


def test_confusion_counts_every_step(page, runs):
    (heat,) = [table for table in page.tables if table[0].get("class") == "heat"]
    counts = [int(cell[0]) for row in heat[2].values() for cell in row[1:] if cell != ["·"]]
    assert sum(counts) == runs["my_run"]["official"]["overall"]["steps"]


def test_flips_show_the_answers_of_both_runs(page):
    words = " ".join(page.text.split())
    wrong_now = words.partition("Right before, wrong now")[2].partition("Wrong before, right now")[0]
    assert wrong_now.count("epoch 1") == 2
    assert "episode e0001, step 1 of 3" in wrong_now
    assert "episode e0002, step 3 of 3" in wrong_now
    assert "episode e0000, step 1 of 3" in words.partition("Wrong before, right now")[2]


def test_steps_that_changed_by_the_strict_scorer_alone_are_shown_as_such(episodes, predictions, tmp_path):
    """The official scorer ignores the direction of a swipe."""
    gold = [row.gold for row in predictions]
    at = next(number for number, action in enumerate(gold) if action.name == "swipe")
    back = Action.swipe(gold[at].lift_yx, gold[at].touch_yx)
    now, before = (answered(predictions, [*gold[:at], action, *gold[at + 1 :]]) for action in (gold[at], back))
    earlier = Earlier("epoch 1", before, compare(before, now))
    write_report(tmp_path / "r.html", {"a": score(now)}, now, Shards(episodes), FACTS, episodes=2, earlier=earlier)
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = " ".join(Page(html).text.split())
    assert "Wrong before, right now: 0 of 0 steps by the official scorer None." in page
    assert "Wrong before, right now: 1 of 1 steps by the strict scorer alone" in page
    flip = html.partition('id="strict_wrong_to_right"')[2].partition("</section>")[0]
    assert flip.count("<figure ") == 1 and "✗ strict" in flip and "✓ strict" in flip and "✗ official" not in flip
    assert 'href="#strict_wrong_to_right"' in html and "strict_right_to_wrong" not in html


def test_a_step_that_a_scorer_does_not_count_is_neither_right_nor_wrong_by_it(episodes, predictions, tmp_path):
    """OS-Atlas' scorer counts no end of a task."""
    scores = score(predictions, scorers=["official", "strict", "os_atlas"])
    write_report(tmp_path / "r.html", {"a": scores}, predictions, Shards(episodes), FACTS)
    figures = (tmp_path / "r.html").read_text(encoding="utf-8").split("<figure data-")[1:]
    heads = [figure.partition(">")[0] for figure in figures]
    is_end = [head.startswith(('gold="complete"', 'gold="impossible"')) for head in heads]
    assert any(is_end)
    assert [head.count("os_atlas") for head in heads] == [0 if end else 1 for end in is_end]


def test_each_answer_of_a_flip_has_its_own_verdicts(html):
    """A step that became wrong by the official scorer need not have been right by the strict one."""
    flip = html.partition('id="right_to_wrong"')[2].partition("</figure>")[0]
    before, now = (part.partition("</div>\n</figcaption>")[0] for part in flip.split('<div class="words ')[2:4])
    assert before.startswith("before")
    assert "✓ official" in before
    assert now.startswith("agent")
    assert "✗ official" in now


def test_steps_that_changed_come_before_the_episodes_and_are_linked(html):
    links = [html.index(f'href="#{way}"') for way in ("right_to_wrong", "wrong_to_right")]
    galleries = [html.index(f'id="{name}"') for name in ("right_to_wrong", "wrong_to_right", "worst", "drawn")]
    assert sorted(links + galleries) == links + galleries


def test_predictions_may_be_files(html, episodes, predictions, runs, before, comparison, tmp_path):
    write_predictions(tmp_path / "now.parquet", predictions)
    write_predictions(tmp_path / "before.parquet", before)
    earlier = Earlier("epoch 1", tmp_path / "before.parquet", comparison)
    files = (tmp_path / "r.html", runs, tmp_path / "now.parquet")
    write_report(*files, Shards(episodes), FACTS, episodes=3, earlier=earlier)
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == html


def test_judged_steps_are_not_judged_again(
    html, episodes, predictions, runs, before, comparison, tmp_path, monkeypatch
):
    judged, judged_before = (judge_steps(rows[::-1], SCORERS) for rows in (predictions, before))
    monkeypatch.setattr("vlm_agent.evaluation.scoring.dialects.find_dialect", None)
    earlier = Earlier("epoch 1", before, comparison, judged_before)
    files = (tmp_path / "r.html", runs, predictions)
    write_report(*files, Shards(episodes), FACTS, judged=judged, episodes=3, earlier=earlier)
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == html


def test_an_episode_missing_from_the_shards_is_named_and_no_incomplete_report_is_written(
    episodes, predictions, tmp_path
):
    with pytest.raises(UserError, match="episode e0001 is in the predictions but not in shards"):
        write_report(tmp_path / "r.html", {"my_run": score(predictions)}, predictions, Shards(episodes[:1]), FACTS)
    assert list(tmp_path.iterdir()) == []


def test_an_episode_with_another_number_of_steps_in_the_shards_is_named(episodes, predictions, tmp_path):
    cut = [replace(episodes[0], steps=episodes[0].steps[:-1]), *episodes[1:]]
    with pytest.raises(UserError, match="episode e0000 is in the predictions but with another number of steps in"):
        write_report(tmp_path / "r.html", {"my_run": score(predictions)}, predictions, Shards(cut), FACTS)


def test_a_box_of_any_finite_size_is_drawn(episodes, predictions, tmp_path):
    huge = UiElement((0.0, 0.0, 1e308, 1.0), "TEXT", "everything")
    rows = [replace(row, elements=(huge,)) for row in predictions]
    write_report(tmp_path / "r.html", {"my_run": score(rows)}, rows, Shards(episodes), FACTS)
    assert re.search(r"M0 0h\d+v\d+h-\d+z", (tmp_path / "r.html").read_text(encoding="utf-8"))


def test_a_run_without_parsed_answers_and_an_empty_run_are_reported(episodes, predictions, tmp_path):
    silent = answered(predictions, [None] * len(predictions))
    write_report(tmp_path / "silent.html", {"silent": score(silent)}, silent, Shards(episodes), FACTS)
    write_report(tmp_path / "empty.html", {"empty": score([])}, [], Shards([]), FACTS)
    assert "nan" not in Page((tmp_path / "empty.html").read_text(encoding="utf-8")).text


def as_shown(value, interval):
    if value is None:
        return ["–"]
    return [f"{value:.1f}", *([] if interval is None else [f"{interval[0]:.1f}–{interval[1]:.1f}"])]


def as_points(value, interval):
    if value is None:
        return ["–"]
    shown = [] if interval is None else [f"{interval[0]:+.1f} to {interval[1]:+.1f}"]
    return [text.replace("-", "−") for text in (f"{value:+.1f}", *shown)]
