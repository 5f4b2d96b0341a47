"""Training on screens that are drawn while the run goes: endless, seeded, and resumed to the same bits."""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import tiny
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file

from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.datasets.drawn_screens import heard_texts
from vlm_agent.models.reading import llama_vit_rows
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN
from vlm_agent.sentences.lessons import Lessons
from vlm_agent.training import drawn_plan
from vlm_agent.training.data import DrawnLessons, EndlessOrder, RowStream
from vlm_agent.training.plan import plan_of
from vlm_agent.training.recipe import Recipe, RecipeError, ValidationRecipe, read_recipe
from vlm_agent.training.train import train

WORDS = tiny.tokenizer()
GOLDEN = (
    "4c0929e3cc9e1b887b7c77ddc89a04631001746ce07395868c45c24a1c9486f1",
    "457591ae225e444d13071755b827f805f057f2facde92cea522b0e8c3da2e8ce",
    "d852a5d856a7cbd0a7a24d406f93e395b8d5f498a266778391b7eb7749949675",
)
WRITER = DrawnLessons(Lessons(tiny.sentences(WORDS), items=4), dense=4, grid=tiny.GRID)


def stream(seed=0, count=2, total=6) -> RowStream:
    return RowStream(EndlessOrder(count, seed), total, WRITER, llama_vit_rows)


def test_rows_hold_numbered_sentences_once_whatever_their_size():
    by_two, by_three = stream(count=2), stream(count=3)
    one = [ids for row in range(3) for ids in (sentence.input_ids for sentence in by_two.sentences(row))]
    other = [ids for row in range(2) for ids in (sentence.input_ids for sentence in by_three.sentences(row))]
    assert one == other
    assert len({tuple(ids) for ids in one}) == 6


def test_another_seed_gives_other_lessons():
    assert stream().sentences(0)[0].input_ids != stream(seed=1).sentences(0)[0].input_ids


def test_screens_are_read_whole_first_and_then_every_second_is_asked_about_before_it_is_seen():
    second = [WRITER(number, random.Random(number)).input_ids[1] for number in range(12)]
    asked = [token != SCREEN_TOKEN for token in second]  # behind the start mark: a goal, or the screen
    assert asked == [False] * 4 + [True, False] * 4


def test_every_screen_has_its_labels():
    for number in range(8):
        sentence = WRITER(number, random.Random(number))
        assert len(sentence.element_labels) == len(sentence.screens) >= 1
        assert any(label != IGNORED for label in sentence.labels)


def test_with_errands_most_lessons_that_ask_first_are_walks_of_an_agents_form():
    writer = replace(WRITER, dense=0, errands=0)
    sentences = [writer(number, random.Random(number)) for number in range(40)]
    begin = [WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0]) for sentence in sentences]
    assert sum("Goal: " in text for text in begin) == 20
    assert 10 <= sum("Goal: In " in text for text in begin) < 20
    assert all(len(sentence.element_labels) == len(sentence.screens) for sentence in sentences)
    assert max(len(sentence.screens) for sentence in sentences) > 3


def test_lessons_get_harder_by_their_number():
    """Told whole, then from number 30 on in part; where nothing is left out, in part from the first."""
    writer = replace(WRITER, dense=0, errands=10, play=30)
    goals = {number: _goal(writer(number, random.Random(number))) for number in range(0, 60, 2)}
    told = [number for number, goal in goals.items() if goal.startswith(("In turn", "In any order"))]
    assert not any("In " in goals[number] for number in range(0, 10, 2))
    assert sum(10 <= number < 30 for number in told) >= 5
    assert sum(number >= 30 for number in told) <= 3
    easiest = replace(writer, errands=0, play=0)
    assert writer.hardest() == easiest != writer
    assert replace(writer, errands=None, play=None).hardest().errands is None


def _goal(sentence) -> str:
    text = WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0])
    return text.partition("Goal: ")[2]


def test_with_play_most_lessons_that_ask_first_are_walks_told_in_part():
    writer = replace(WRITER, dense=0, errands=0, play=0)
    sentences = [writer(number, random.Random(number)) for number in range(0, 60, 2)]
    goals = [WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0]) for sentence in sentences]
    assert all("Goal: " in goal for goal in goals)
    assert 1 <= sum("Goal: In " in goal or "Goal: Type " in goal for goal in goals) <= 8
    assert all(len(sentence.element_labels) == len(sentence.screens) for sentence in sentences)


_DIGEST = """
import sys
sys.path[:0] = sys.argv[1:]
import test_drawn
print(test_drawn.digest())
"""


def digest() -> str:
    """Of lessons of both forms, of errands told whole, and of walks told in part; pixels and all."""
    errands = replace(WRITER, dense=0, errands=0)
    few = [_digest_of(writer, 8) for writer in (WRITER, errands)]
    return " ".join([*few, _digest_of(replace(errands, play=0), 24)])


def _digest_of(writer: DrawnLessons, lessons: int) -> str:
    told = hashlib.sha256()
    for number in range(lessons):
        sentence = writer(number, random.Random(f"golden {number}"))
        told.update(repr(sentence.input_ids).encode() + b"".join(screen.tobytes() for screen in sentence.screens))
    return told.hexdigest()


def test_lessons_are_the_same_in_every_process():
    """And after every change: a pretraining run that goes on has to draw what it drew. Where fonts, Pillow or the
    drawing itself change on purpose, so does this number, and pretrained weights cannot be made again from then on."""
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    here = Path(__file__).parent
    command = [sys.executable, "-c", _DIGEST, str(here), str(here.parent)]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert other == digest() == " ".join(GOLDEN)


@pytest.fixture(autouse=True)
def few_words(monkeypatch):
    """A vocabulary that takes no seconds to gather."""
    monkeypatch.setattr(drawn_plan, "heard_texts", lambda: islice(heard_texts(), 3000))


def test_validation_asks_in_both_forms(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run") | {"data": {"drawn": {"dense": 1000, "items": 4}}}
    rows = plan_of(Recipe(**content)).validation_rows(ValidationRecipe(episodes=6))
    sentences = [sentence for row in range(len(rows)) for sentence in rows.sentences(row)]
    assert [sentence.input_ids[1] != SCREEN_TOKEN for sentence in sentences] == [True, False] * 3


def run(folder: Path, name: str, **overrides) -> tuple[Path, str]:
    content = tiny.recipe(folder, folder / name)
    content["data"] = {"drawn": {"dense": 2, "items": 4}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    printed = Console(file=io.StringIO(), width=200)
    return train(read_recipe(path, {key.replace("__", "."): value for key, value in overrides.items()}), printed), (
        printed.file.getvalue()
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_a_run_learns_from_drawn_screens_validates_on_others_and_is_an_agent(tmp_path):
    folder, printed = run(tmp_path, "run", training__validation="{episodes: 3, steps: 3}")
    assert "6 lessons on screens drawn as they are needed, the first 2 of whole screens" in printed
    assert "validation: loss" in printed
    record = json.loads((folder / "run.json").read_text())
    assert record["manifest"] is None
    agent = VlmAgent.from_run(folder)
    assert len(agent.answer_episode(tiny.episode())) == len(tiny.ACTIONS)


def test_a_run_that_goes_on_ends_with_the_weights_of_an_undisturbed_one(tmp_path):
    whole, _ = run(tmp_path, "whole", training__steps="4", training__save_steps="2")
    (whole / "run.json").unlink()
    before = weights(whole)
    shutil.rmtree(whole / "checkpoints" / "checkpoint-4")
    again, printed = run(tmp_path, "whole", training__steps="4", training__save_steps="2")
    assert "step 4/4" in printed
    assert all(torch.equal(value, before[name]) for name, value in weights(again).items())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"data.shards": "x"}, "either shards or drawn"),
        ({"data.split": "test"}, "remove split; with drawn it says nothing"),
        ({"training.batch_size": "null", "training.batch_tokens": "100"}, "no end and no known lengths"),
        ({"data.drawn.play": "0"}, "play follows errands; give the lesson that they begin with"),
        ({"data.drawn.dense": "9", "data.drawn.errands": "8"}, "dense, errands and play each begin behind the last"),
        ({"data.drawn.errands": "9", "data.drawn.play": "8"}, "dense, errands and play each begin behind the last"),
        ({"training.validation": "{split: test}"}, "remove training.validation.split"),
        ({"training.steps": "null", "training.epochs": "1"}, "no end and no known lengths"),
    ],
)
def test_what_does_not_go_with_drawn_screens_is_refused(tmp_path, overrides, said):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    content["data"] = {"drawn": {}}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(RecipeError, match=said):
        read_recipe(path, overrides)


def test_what_is_saved_reads_as_the_same_recipe(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    content["data"] = {"drawn": {"dense": 7}, "workers": 2}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    recipe = read_recipe(path)
    (tmp_path / "saved.yaml").write_text(recipe.to_yaml())
    assert read_recipe(tmp_path / "saved.yaml") == recipe
    assert plan_of(recipe).order.row(2) == [(4, 4), (5, 5)]
