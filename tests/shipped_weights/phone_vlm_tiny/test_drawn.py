"""Training on drawn screens: an endless, seeded stream of lessons, and exact resume."""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from rich.console import Console
from safetensors.torch import load_file

from shipped_weights.phone_vlm_tiny import data
from shipped_weights.phone_vlm_tiny.__main__ import main
from shipped_weights.phone_vlm_tiny.data import DrawnDataModule
from shipped_weights.phone_vlm_tiny.drawn.screens import vocabulary_texts
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, LessonRecipe, read_pretraining
from shipped_weights.phone_vlm_tiny.stream import DrawnLessons, EndlessOrder
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.errors import RecipeError, TrainingError
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.recipe.run import ValidationRecipe, read_recipe
from vlm_agent.recipe.yaml_file import read_mapping
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN
from vlm_agent.training.data.stream import RowStream
from vlm_agent.training.train import train

WORDS = tiny.tokenizer()
FOLDER = Path(data.__file__).parent
GOLDEN = (
    "fb81d56fac927b9f132ece3f0f2fa3140fec63620b628bfcd2d86fac238c8e0c",
    "aa2d1404f4246e5eb8c5ac439d18326458929e8d1244f80ac5629dd480bf0f45",
    "4c47f8c6f405c54d7d6ca2d4b112d290e48032191f282ccd193aa06bfd8ec3c3",
)
SETTINGS = DrawnRecipe(items=4, dense=0.1, instructed_walks=1, exploration_walks=1)
WRITER = DrawnLessons(tiny.sentences(WORDS), SETTINGS, 40, tiny.GRID)


def writer_with(**settings) -> DrawnLessons:
    return replace(WRITER, settings=SETTINGS.model_copy(update=settings))


def stream(seed=0, count=2, total=6) -> RowStream:
    return RowStream(EndlessOrder(count, seed), total, WRITER, collate)


def test_rows_contain_every_sentence_of_the_stream_once_whatever_their_size():
    by_two, by_three = stream(count=2), stream(count=3)
    one = [ids for row in range(3) for ids in (sentence.input_ids for sentence in by_two.sentences(row))]
    other = [ids for row in range(2) for ids in (sentence.input_ids for sentence in by_three.sentences(row))]
    assert one == other
    assert len({tuple(ids) for ids in one}) == 6


def test_lessons_depend_on_the_seed():
    assert stream().sentences(0)[0].input_ids != stream(seed=1).sentences(0)[0].input_ids


def test_dense_lessons_come_first_and_then_every_second_lesson_gives_its_goal_first():
    second = [WRITER(number, random.Random(number)).input_ids[1] for number in range(12)]
    asked = [token != SCREEN_TOKEN for token in second]  # after the start token: a goal, or the screen
    assert asked == [False] * 4 + [True, False] * 4


def test_every_screen_has_its_labels():
    for number in range(8):
        sentence = WRITER(number, random.Random(number))
        assert len(sentence.element_labels) == len(sentence.screens) >= 1
        assert any(label != IGNORED for label in sentence.labels)


def test_after_instructed_walks_start_most_goal_first_lessons_are_walks():
    writer = writer_with(dense=0, instructed_walks=0)
    sentences = [writer(number, random.Random(number)) for number in range(40)]
    begin = [WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0]) for sentence in sentences]
    assert sum("Goal: " in text for text in begin) == 20
    assert 10 <= sum("Goal: In " in text for text in begin) < 20
    assert all(len(sentence.element_labels) == len(sentence.screens) for sentence in sentences)
    assert max(len(sentence.screens) for sentence in sentences) > 3


def test_lessons_get_harder_by_their_number():
    """Instructed walks from number 10 on, mostly partial instructions from 30 on; at full difficulty, from the
    first."""
    writer = replace(writer_with(dense=0, instructed_walks=1 / 6, exploration_walks=0.5), total=60)
    goals = {number: _goal(writer(number, random.Random(number))) for number in range(0, 60, 2)}
    instructed = [number for number, goal in goals.items() if goal.startswith(("In turn", "In any order"))]
    assert min(instructed) >= 10
    assert sum(10 <= number < 30 for number in instructed) >= 5
    assert sum(number >= 30 for number in instructed) <= 3
    hardest = writer_with(dense=0, instructed_walks=0, exploration_walks=0)
    assert writer.at_full_difficulty() == replace(hardest, total=60) != writer
    longer = replace(writer, total=600)
    assert longer(10, random.Random(10)).input_ids == writer_with(dense=0)(10, random.Random(10)).input_ids


def _goal(sentence) -> str:
    text = WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0])
    return text.partition("Goal: ")[2]


def test_after_exploration_walks_start_most_goal_first_lessons_are_partial_instructions():
    writer = writer_with(dense=0, instructed_walks=0, exploration_walks=0)
    sentences = [writer(number, random.Random(number)) for number in range(0, 60, 2)]
    goals = [WORDS.decode([token for token in sentence.input_ids[:14] if token >= 0]) for sentence in sentences]
    assert all("Goal: " in goal for goal in goals)
    assert 1 <= sum("Goal: In " in goal or "Goal: Type " in goal for goal in goals) <= 8
    assert all(len(sentence.element_labels) == len(sentence.screens) for sentence in sentences)


_DIGEST = """
import sys
from vlm_agent.files.imports import start_program
start_program()
sys.path[:0] = sys.argv[1:]
import test_drawn
print(test_drawn.digest())
"""


def digest() -> str:
    """The digest of dense and goal-first lessons, instructed walks and exploration walks, pixels included."""
    few = [_digest_of(writer, 8) for writer in (WRITER, writer_with(dense=0, instructed_walks=0))]
    explorations = writer_with(dense=0, instructed_walks=0, exploration_walks=0)
    return " ".join([*few, _digest_of(explorations, 24)])


def _digest_of(writer: DrawnLessons, lessons: int) -> str:
    hashed = hashlib.sha256()
    for number in range(lessons):
        sentence = writer(number, random.Random(f"golden {number}"))
        hashed.update(repr(sentence.input_ids).encode() + b"".join(screen.tobytes() for screen in sentence.screens))
    return hashed.hexdigest()


def test_lessons_are_the_same_in_every_process():
    """And in every version, because a resumed run must read the same lessons. A deliberate change of fonts, Pillow or
    drawing changes these digests; earlier pretrained weights can then no longer be reproduced."""
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    here = Path(__file__).parent
    command = [sys.executable, "-c", _DIGEST, str(here), str(here.parents[1])]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert other == digest() == " ".join(GOLDEN)


@pytest.fixture(autouse=True)
def few_words(monkeypatch):
    """A small vocabulary, because the full one takes seconds."""
    monkeypatch.setattr(data, "vocabulary_texts", lambda drawn: islice(vocabulary_texts(drawn), 3000))


def write(folder: Path, name: str, **changes) -> Path:
    """A recipe of lessons; `changes` of keys, whose dots are written as two underscores."""
    content = tiny.recipe(folder, folder / name)
    content |= {"data": {}, "lessons": {"dense": 1 / 3, "instructed_walks": 1, "exploration_walks": 1, "items": 4}}
    for key, value in changes.items():
        *sections, last = key.split("__")
        section = content
        for one in sections:
            section = section.setdefault(one, {})
        section[last] = value
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def data_of(path: Path, overrides: Mapping[str, str] | None = None) -> DrawnDataModule:
    recipe, lessons = read_pretraining(path, overrides or {})
    return DrawnDataModule(recipe, lessons)


def test_validation_has_dense_and_goal_first_lessons(tmp_path):
    rows = data_of(write(tmp_path, "run", lessons__dense=1)).validation_rows(ValidationRecipe(episodes=6))
    sentences = [sentence for row in range(len(rows)) for sentence in rows.sentences(row)]
    assert [sentence.input_ids[1] != SCREEN_TOKEN for sentence in sentences] == [True, False] * 3


def run(folder: Path, name: str, **changes) -> tuple[Path, str]:
    recipe, lessons = read_pretraining(write(folder, name, **changes), {})
    printed = Console(file=io.StringIO(), width=200)
    return train(recipe, printed, partial(DrawnDataModule, lessons=lessons)), printed.file.getvalue()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_a_run_learns_from_drawn_screens_validates_on_others_and_is_an_agent(tmp_path):
    folder, printed = run(tmp_path, "run", training__validation={"episodes": 3, "steps": 3})
    assert (
        "6 lessons on screens drawn during training, whole screens from lesson 0 on, goals before the screen" in printed
    )
    assert "validation: loss" in printed
    record = json.loads((folder / "run.json").read_text())
    assert record["manifest"] is None
    agent = VlmAgent.from_run(folder)
    assert len(agent.answer_episodes([tiny.episode()])[0]) == len(tiny.ACTIONS)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path):
    whole, _ = run(tmp_path, "whole", training__steps=4, training__save_steps=2)
    (whole / "run.json").unlink()
    before = weights(whole)
    shutil.rmtree(whole / "checkpoints" / "checkpoint-4")
    again, printed = run(tmp_path, "whole", training__steps=4, training__save_steps=2)
    assert "step 4/4" in printed
    assert all(torch.equal(value, before[name]) for name, value in weights(again).items())


def test_a_run_of_other_lessons_is_not_resumed(tmp_path):
    folder, _ = run(tmp_path, "run", training__save_steps=2)
    (folder / "run.json").unlink()
    assert read_mapping(folder / "lessons.yaml", RecipeError)["items"] == 4
    with pytest.raises(TrainingError, match="sha256 of the data"):
        run(tmp_path, "run", training__save_steps=2, lessons__items=5)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("words.phone", 0.9, "the probabilities of words exclude each other"),
        ("collage.text", 0.9, "the probabilities of collage exclude each other"),
        ("instructed_walk.swipe", 1, "the probabilities of instructed_walk exclude each other"),
        ("instructed_walk.most_steps", 1, "least_steps must not be greater than most_steps"),
        ("random_walk.shade", 2, "less than or equal to 1"),
    ],
)
def test_impossible_probabilities_are_refused(tmp_path, key, value, message):
    path = write(tmp_path, "run", **{f"lessons__{key.replace('.', '__')}": value})
    with pytest.raises(RecipeError, match=message):
        read_pretraining(path, {})


def test_a_probability_of_the_recipe_changes_the_lessons():
    listing = writer_with(lessons=LessonRecipe(listing=1.0))
    changed = listing(0, random.Random(0))
    assert "List" in WORDS.decode([token for token in changed.input_ids if token >= 0])
    without = writer_with(dense=0, instructed_walks=0, instructed_walk_share=0.0, checked_walk_share=0.0)
    goals = [_goal(without(number, random.Random(number))) for number in range(0, 40, 2)]
    assert not any(goal.startswith(("In turn", "In any order")) for goal in goals)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__shards": "x"}, "data: remove shards; it has no effect on lessons"),
        ({"data__split": "test"}, "data: remove split; it has no effect on lessons"),
        ({"training__batch_size": None, "training__batch_tokens": 100}, "endless and of unknown length"),
        ({"lessons__dense": 0.9, "lessons__instructed_walks": 0.8}, "and exploration_walks must not decrease"),
        ({"training__validation": {"split": "test"}}, "remove training.validation.split"),
        ({"training__steps": None, "training__epochs": 1}, "endless and of unknown length"),
    ],
)
def test_keys_that_have_no_effect_on_lessons_are_refused(tmp_path, changes, message):
    with pytest.raises(RecipeError, match=message):
        read_pretraining(write(tmp_path, "run", **changes), {})


def test_a_saved_recipe_reads_as_the_same_recipe_and_its_lessons_stand_beside_it(tmp_path):
    path = write(tmp_path, "run", lessons__dense=0.7, data__workers=2)
    read = data_of(path)
    (tmp_path / "saved.yaml").write_text(read.recipe.to_yaml())
    assert read_recipe(tmp_path / "saved.yaml") == read.recipe
    read.record(tmp_path)
    assert DrawnRecipe(**read_mapping(tmp_path / "lessons.yaml", RecipeError)) == read.lessons
    assert read.order.row(2) == [(4, 4), (5, 5)]


def test_the_curriculum_is_a_recipe_whose_stages_scale_with_its_steps():
    recipe, lessons = read_pretraining(FOLDER / "curriculum.yaml", {"output": "elsewhere", "training.steps": "100"})
    assert (recipe.output, recipe.training.steps) == ("elsewhere", 100)
    assert lessons == DrawnRecipe()


def test_any_number_of_pieces_gives_the_same_weights(tmp_path):
    """And the same batches in one row a step, or accumulated."""
    path, pieces = write(tmp_path, "run", training__steps=3), []
    assert main(["--config", str(path), "--output", str(tmp_path / "whole")]) == 0
    while not pieces or pieces[-1]:
        pieces.append(main(["--config", str(path), "--output", str(tmp_path / "pieces"), "--minutes", "0.0001"]))
    assert pieces == [75, 75, 0]
    one, other = (tmp_path / name / "model/model.safetensors" for name in ("whole", "pieces"))
    assert one.read_bytes() == other.read_bytes()
    rows = [
        data_of(path, {"training.batch_size": f"{size}", "training.accumulation": f"{2 // size}"}) for size in (1, 2)
    ]
    assert [len(one.stream()) for one in rows] == [6, 3]
    halves, whole = (one.stream() for one in rows)
    assert [s.input_ids for row in (0, 1) for s in halves.sentences(row)] == [s.input_ids for s in whole.sentences(0)]


def test_the_command_trains_and_prints_an_error_in_one_line(tmp_path, capsys):
    path = write(tmp_path, "run")
    assert main(["--config", str(path), "--output", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other/run.json").is_file()
    assert main(["--config", str(write(tmp_path, "bad", lessons__items=0))]) == 1
    assert "bad.yaml: lessons: items" in capsys.readouterr().err
