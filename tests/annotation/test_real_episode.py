"""The real episode of Android in the Zoo: annotated over HTTP, and read back through shards."""

import base64
import io

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.pages.annotation_requests import kind, parts
from PIL import Image

from vlm_agent.annotation.annotator import STOPPED
from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.drawing.actions import PREDICTED
from vlm_agent.episodes import element_at, recorded_screen

REPLIES = {
    "screen": "A screen of a phone.\n\n",
    "action": 'Click on "the Clock app in the third row".',
    "think": "The request needs the Clock app. So this action follows.",
    "result": "Another screen is shown.",
}


def pictures(body):
    urls = [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))) for url in urls]


@pytest.fixture(scope="module")
def shards(shared, tmp_path_factory):
    output = tmp_path_factory.mktemp("aitz") / "shards"
    assert (
        main(["convert", "--source", "aitz", "--input", str(shared / "data/aitz_episode"), "--output", str(output)])
        == 0
    )
    return output


def test_its_own_texts_are_kept_and_pass_the_check(shards, tmp_path, capsys):
    with serving(lambda _, body: Reply(REPLIES[kind(body)])) as (url, requests):
        words = ["annotate", str(shards), "--endpoint", url, "--model", "mine", "--output", str(tmp_path / "out")]
        assert main(words) == 0
        assert requests == []
    assert ShardDataset(tmp_path / "out").row(0) == ShardDataset(shards).row(0)
    assert main(["annotate", "--check", str(shards)]) == 0
    assert "no action description needs a look" in capsys.readouterr().out


def test_it_is_annotated_anew_over_http_and_read_back(shards, tmp_path):
    output = tmp_path / "out"
    with serving(lambda _, body: Reply(REPLIES[kind(body)])) as (url, requests):
        words = ["annotate", str(shards), "--endpoint", url, "--model", "mine", "--output", str(output), "--replace"]
        assert main(words) == 0
    (before,), (episode,) = ShardDataset(shards), ShardDataset(output)
    assert [step.notes["action"] for step in episode.steps] == [
        "press the home button",
        "scroll up",
        "click on the Clock app in the third row",
        "stop, the task is complete",
    ]
    assert [step.notes["result"] for step in episode.steps] == [REPLIES["result"]] * 3 + [STOPPED]
    assert {step.notes["screen"] for step in episode.steps} == {"A screen of a phone."}
    assert {step.notes["think"] for step in episode.steps} == {REPLIES["think"]}
    assert recorded_screen(episode, 1).notes["result"] == REPLIES["result"]
    assert all(
        np.array_equal(step.screenshot, old.screenshot) for step, old in zip(episode.steps, before.steps, strict=True)
    )

    asked = {name: [request.body for request in requests if kind(request.body) == name] for name in REPLIES}
    assert {name: len(bodies) for name, bodies in asked.items()} == {"screen": 4, "action": 1, "think": 4, "result": 3}
    (marked,) = pictures(asked["action"][0])
    drawn = np.argwhere((marked == PREDICTED).all(axis=2)) / marked.shape[:2]
    assert np.abs(drawn.mean(axis=0) - episode.steps[2].action.touch_yx).max() < 0.01
    for number, body in enumerate(asked["result"]):
        both = zip(pictures(body), (before.steps[number], before.steps[number + 1]), strict=True)
        assert all(np.array_equal(picture, step.screenshot) for picture, step in both)
        assert before.goal not in parts(body)[0]
    assert all(before.goal in parts(body)[0] for body in asked["think"])
    assert "1. press the home button\n2. scroll up" in parts(asked["think"][2])[0]
    assert not any(step.notes["screen"] in str(requests[0].body) for step in before.steps)


def test_its_tap_and_the_start_of_its_swipe_lie_on_no_annotated_element(shards):
    """D-PoT's language writes the nearest element in place of the point of a tap."""
    (episode,) = ShardDataset(shards)
    touches = [step for step in episode.steps if step.action.is_tap or step.action.is_swipe]
    assert [step.action.name for step in touches] == ["swipe", "tap"]
    assert [element_at(step.elements, step.action.touch_yx) for step in touches] == [None, None]
