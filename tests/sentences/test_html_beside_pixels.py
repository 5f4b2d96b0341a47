"""`data.notes: {html: read}`: a screen is its elements as HTML and then its pixels, in training and in acting."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from helpers import tiny
from helpers.models import families, tiny_llava

from vlm_agent.agents import demonstrated
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import OK, main
from vlm_agent.episodes import recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.models.llava.family import LLAVA
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.segments import Segment

DATA = DataRecipe(notes={"html": "read"}, past_screens=0)
EPISODE = tiny.episode(1)


@pytest.fixture(scope="module")
def family():
    return families.family(families.LLAVA)


@pytest.fixture(scope="module")
def sentences(family):
    return family.processor.sentences(family.words, tiny.LANGUAGE, DATA)


def test_html_stands_on_its_own_lines_before_the_pixels(sentences):
    segments = sentences.prompt_segments(replace(EPISODE, steps=EPISODE.steps[:1]))
    picture = next(at for at, segment in enumerate(segments) if segment.is_picture)
    html = [segment.text for segment in segments[:picture] if "<" in (segment.text or "")]
    assert html == [screen_html(EPISODE.steps[0].screen)]
    assert html[0].count("\n") == len(tiny.ELEMENTS) > 1


def test_only_the_current_screen_is_shown_and_lengths_need_no_pixels(sentences):
    for number in range(len(EPISODE)):
        segments = sentences.step_segments(EPISODE, number)
        sentence = sentences.encode(segments)
        assert sentences.length(segments) == len(sentence)
        assert sentence.input_ids.count(SCREEN_TOKEN) == 16


def test_long_texts_have_the_tokens_that_short_ones_would_have(sentences):
    text = "tap " * 400
    assert sentences.ids(text) == sentences.tokenised(text, special=False)
    assert sentences.length([Segment(text)]) == len(sentences.encode([Segment(text)]))


def test_an_agent_refuses_a_screen_without_elements_and_answers_one_with_them(family, sentences):
    agent = VlmAgent(family.model, family.words, sentences)
    screen = recorded_screen(EPISODE, 1)
    assert agent.act(EPISODE.goal, demonstrated(EPISODE, 1), screen).usage.tokens[0] > 16
    with pytest.raises(UserError, match="reads the elements of the screen, and this source has none"):
        agent.act(EPISODE.goal, demonstrated(EPISODE, 1), replace(screen, elements=None))


def test_html_depends_on_elements_and_pixels_on_the_screenshot(sentences):
    step = EPISODE.steps[0]
    other = replace(step, screenshot=np.zeros_like(step.screenshot))
    fewer = replace(step, elements=step.elements[:1])
    whole, blind, short = (sentences.build_step(replace(EPISODE, steps=(one,)), 0) for one in (step, other, fewer))
    assert whole.input_ids == blind.input_ids
    assert not np.array_equal(whole.screens[0], blind.screens[0])
    assert len(short) < len(whole)


def write_recipe(shards, run, **data):
    content = tiny.recipe(shards, run)
    content["model"] = {
        "vlm": {"config": tiny_llava.CONFIG},
        "word_tokenizer": {"vocabulary": 1000},
        "lora": {"rank": 2},
    }
    content["action_language"] = {"name": "element_index"}
    content["data"] |= {"split": "test", "past_screens": 0, "notes": {"html": "read"}} | data
    content["training"] |= {"steps": 2}
    run.with_suffix(".yaml").write_text(yaml.safe_dump(content))
    return run.with_suffix(".yaml")


def test_a_llava_is_trained_on_pixels_and_html_evaluated_and_merged(tmp_path):
    episodes = [tiny.episode(0, tiny.ACTIONS[:2])]
    shards, run = tiny.write_shards(tmp_path / "shards", episodes, split="test"), tmp_path / "run"
    assert main(["train", "--config", str(write_recipe(shards, run))]) == OK
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--split", "test"]
    assert main([*command, "--output", str(tmp_path / "out")]) == OK
    rows = read_predictions(next((tmp_path / "out").rglob("predictions*.parquet")))
    assert len(rows) == sum(map(len, episodes))
    assert main(["merge", str(run), "--output", str(tmp_path / "merged")]) == OK
    merged = LLAVA.load(tmp_path / "merged" / "model")
    assert merged.config.model_type == "llava"


def test_shards_without_elements_are_refused(tmp_path, capsys):
    bare = [replace(one, steps=tuple(replace(step, elements=()) for step in one.steps)) for one in [tiny.episode(0)]]
    shards = tiny.write_shards(tmp_path / "shards", bare, split="test")
    assert main(["train", "--config", str(write_recipe(shards, tmp_path / "run"))]) != OK
    assert "reads the elements of screens, and these shards have none" in capsys.readouterr().err
