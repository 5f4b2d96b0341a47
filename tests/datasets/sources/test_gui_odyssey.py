"""GUI-Odyssey: actions, notes and the gold box of a step as published; damage costs one episode with its reason."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.data.conversions import books_of, converted

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.sources import gui_odyssey
from vlm_agent.datasets.sources.registry import find_inputs
from vlm_agent.episodes import TARGET, Action, ActionKind
from vlm_agent.files.png import _chunk

DATA = Path(__file__).parents[2] / "data/agents_2025"
SAMPLE = DATA / "gui_odyssey"
(ANNOTATION,) = SAMPLE.glob("annotations/*.json")
_WORDS = {
    ActionKind.PRESS_BACK: "PRESS_BACK",
    ActionKind.PRESS_HOME: "PRESS_HOME",
    ActionKind.RECENTS: "PRESS_RECENT",
    ActionKind.STATUS_TASK_COMPLETE: "COMPLETE",
    ActionKind.STATUS_TASK_IMPOSSIBLE: "IMPOSSIBLE",
}


def gold(action: Action) -> str:
    """The action as the authors' converter writes it."""
    if action.is_touch:
        y, x = action.touch_yx
        return f"{'CLICK' if action.is_tap else 'LONG_PRESS'}: ({round(1000 * x)}, {round(1000 * y)})"
    if action.direction is not None:
        return f"SCROLL: {action.direction.upper()}"
    return f"TYPE: {action.text}" if action.kind is ActionKind.TYPE else _WORDS[action.kind]


def changed(folder: Path, **changes) -> Path:
    """A copy of the sample in which step 3, or the file, has other values."""
    shutil.copytree(SAMPLE, folder)
    path = folder / "annotations" / ANNOTATION.name
    content = json.loads(path.read_text())
    for key, value in changes.items():
        (content if key in content else content["steps"][3])[key] = value
    path.write_text(json.dumps(content))
    return path


def test_the_actions_are_those_of_the_authors_converter(shared, tmp_path):
    data = shared / "data/agents_2025/gui_odyssey"
    converted(data, output=tmp_path / "out", source="gui_odyssey")
    stored = {episode.id: [gold(step.action) for step in episode.steps] for episode in ShardDataset(tmp_path / "out")}
    assert stored == {one["episode_id"]: one["golds"] for one in json.loads((data / "expected.json").read_text())}


def test_the_command_of_the_documentation_keeps_notes_gold_boxes_and_pngs(tmp_path, capsys):
    convert = ["convert", "--source", "gui_odyssey", "--input", str(SAMPLE), "--output", str(tmp_path / "odyssey")]
    assert main([*convert, "--split", "random_split", "--workers", "1"]) == OK
    shards = ShardDataset(tmp_path / "odyssey", split="test")
    (episode,) = shards
    assert (episode.subset, episode.device_type, episode.android_api_level) == ("Web_Shopping", "Pixel Tablet", 34)
    step = episode.steps[3]
    assert (step.instruction, step.notes["step"]) == ("Tap the last corner", "Tap the last corner")
    assert step.notes["context"] == "A made-up context."
    (target,) = step.tree
    assert (target.type, target.box) == (TARGET, pytest.approx((0.95, 0.96, 0.05, 0.04)))
    assert step.elements == ()
    screens = [step["screenshot"]["bytes"] for step in shards.row(0)["steps"]]
    assert screens == [path.read_bytes() for path in sorted((SAMPLE / "screenshots").iterdir())]
    assert main([*convert, "--split", "nope"]) == FAILED
    assert "split 'nope' is unknown" in capsys.readouterr().err
    assert main(["convert", "--input", "x", "--output", "y", "--split", "nope"]) == FAILED
    assert "source aitw has no named splits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ends", "direction"),
    [
        ([[500, 500], [500, 500]], "up"),
        ([[500, 500], [510, 500]], "right"),
        ([[100, 500], [300, 300]], "up"),
        ([[300, 300], [100, 500]], "down"),
        ([[900, 500], [100, 400]], "left"),
    ],
)
def test_a_scroll_keeps_its_direction_at_any_length_and_at_a_tie(tmp_path, ends, direction):
    path = changed(tmp_path / "in", action="SCROLL", info=ends)
    assert list(gui_odyssey.read_steps(path))[3].step.action.direction == direction


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action": "FLY"}, "steps 3: action 'FLY' is unknown"),
        ({"info": "KEY_POWER"}, "steps 3: the button 'KEY_POWER' is unknown"),
        ({"info": [[5000, 1]]}, r"steps 3: the point \[5000, 1\]"),
        ({"info": []}, r"steps 3: info is \[\], expected 1 point"),
        ({"action": "SCROLL"}, "steps 3: info is .*, expected 2 point"),
        ({"action": "TEXT"}, "steps 3: info holds .*, expected a string"),
        ({"sam2_bbox": [1, 2]}, "steps 3: sam2_bbox has 2 values, expected 4"),
        ({"screenshot": "../../secret.png"}, "steps 3: the screen secret.png is missing"),
        ({"screenshot": "é" * 250}, "steps 3: 'é*' does not name a file"),
        ({"step_length": 6}, "steps has 5 steps, but step_length is 6"),
        ({"steps": 7}, "steps is no list"),
        ({"task_info": {"category": "../x"}}, "task_info.category: '../x' cannot be the name of a subset"),
        ({"task_info": {"category": "index.parquet"}}, "category: 'index.parquet' cannot be the name of a subset"),
    ],
)
def test_a_damaged_episode_is_quarantined_with_its_reason(tmp_path, changes, reason):
    path = changed(tmp_path / "in", **changes)
    good = path.with_name("0000009900000007.json")
    good.write_text(ANNOTATION.read_text())
    _, _, (line,), _ = converted(tmp_path / "in", output=tmp_path / "out", source="gui_odyssey")
    assert Path(line["file"]) == path
    assert re.search(reason, line["reason"]), line["reason"]
    assert list(ShardDataset(tmp_path / "out").ids) == [good.stem]
    assert line["steps"] == (1 if changes.keys() & {"steps", "step_length"} else 5)


def test_points_that_are_moved_to_the_edge_are_counted(tmp_path):
    changed(tmp_path / "in", action="SCROLL", info=[[1009, 500], [500, -9]])
    _, manifest, _, _ = converted(tmp_path / "in", output=tmp_path / "out", source="gui_odyssey")
    assert manifest["points_moved"] == 2


def test_two_annotations_of_one_episode_differ_although_their_screens_are_the_same(tmp_path):
    for release, x in (("old", 100), ("new", 101)):
        changed(tmp_path / release, action="CLICK", info=[[x, 100]])
    _, manifest, lines, _ = converted(tmp_path / "new", tmp_path / "old", output=tmp_path / "out", source="gui_odyssey")
    assert manifest["episodes_written"] == 0
    assert not any("the same checksum" in line["reason"] and "step 3 " in line["reason"] for line in lines)


def test_an_episode_in_a_file_whose_name_is_not_utf_8_is_quarantined(tmp_path):
    path = changed(tmp_path / "in")
    path.rename(path.with_name(os.fsdecode(b"\xff.json")))
    path.write_text(ANNOTATION.read_text())
    _, _, (line,), _ = converted(tmp_path / "in", output=tmp_path / "out", source="gui_odyssey")
    assert "the name of the file is not valid Unicode at character 0" in line["reason"]
    assert list(ShardDataset(tmp_path / "out").ids) == [path.stem]


def test_a_damaged_screen_or_file_is_named(tmp_path):
    path = changed(tmp_path / "in")
    screen = tmp_path / "in/screenshots" / f"{path.stem}_2.png"
    screen.write_bytes(screen.read_bytes()[:-50])
    (bad,) = gui_odyssey.read_steps(path)
    assert f"steps 2: the screen {screen.name} cannot be read" in bad.reason
    path.write_text("{")
    (bad,) = gui_odyssey.read_steps(path)
    assert "the file is not JSON" in bad.reason


def with_garbage_for_pixels(png: bytes) -> bytes:
    return png[:33] + _chunk(b"IDAT", b"no pixels") + png[-12:]


def with_a_short_chunk(png: bytes) -> bytes:
    return png[:-12] + _chunk(b"gAMA", b"") + png[-12:]


@pytest.mark.parametrize("damage", [with_garbage_for_pixels, with_a_short_chunk])
@pytest.mark.parametrize("name", ["png", "webp"])
def test_a_screen_with_right_checksums_that_cannot_be_decoded_costs_its_episode(tmp_path, damage, name):
    path = changed(tmp_path / "in")
    screen = tmp_path / "in/screenshots" / f"{path.stem}_2.png"
    screen.write_bytes(damage(screen.read_bytes()))
    arguments = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--workers", "1"]
    assert main(["convert", "--source", "gui_odyssey", *arguments, "--image-format", name]) == FAILED
    _, lines = books_of(tmp_path / "out")
    assert {line["file"] for line in lines} == {str(path)}
    assert any(re.search("step 2: the screen cannot be decoded", line["reason"]) for line in lines)


def test_an_episode_whose_screens_are_too_large_together_is_refused_before_all_are_read(tmp_path, monkeypatch):
    path = changed(tmp_path / "in")
    sizes = [screen.stat().st_size for screen in sorted((tmp_path / "in/screenshots").iterdir())]
    monkeypatch.setattr(gui_odyssey, "_MAX_EPISODE_BYTES", sum(sizes[:3]) - 1)
    (tmp_path / "in/screenshots" / f"{path.stem}_3.png").unlink()
    (bad,) = gui_odyssey.read_steps(path)
    assert bad.reason == f"steps 2: the screens up to this one have more than {sum(sizes[:3]) - 1} bytes"
    monkeypatch.setattr(gui_odyssey, "_MAX_EPISODE_BYTES", sum(sizes))
    assert len(list(gui_odyssey.read_steps(changed(tmp_path / "whole")))) == len(sizes)


def test_a_category_is_a_subset():
    assert [input_.name for input_ in find_inputs(gui_odyssey.SOURCE, [SAMPLE])] == ["Web_Shopping-00000-of-00001"]


@pytest.mark.parametrize("source", ["androidcontrol", "gui_odyssey"])
def test_a_tiny_recipe_trains_on_step_instructions(tmp_path, source):
    data = DATA / {"androidcontrol": "android_control"}.get(source, source)
    converted(data, output=tmp_path / "data", source=source, screens=ScreenFormat(max_pixels=60_000))
    content = tiny.recipe(tmp_path / "data", tmp_path / "run")
    content["data"] |= {"notes": {"step": "read"}, "missing_notes": "empty"}
    content["training"] |= {"steps": 1, "batch_size": 1}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(tmp_path / "recipe.yaml")]) == OK
