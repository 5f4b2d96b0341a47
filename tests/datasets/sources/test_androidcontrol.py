"""AndroidControl: the published structure is read as it is, and damage costs one episode with its reason."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from golden import agents_2025_data
from helpers.data.conversions import converted

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.formats.accessibility import MAX_NODES
from vlm_agent.datasets.formats.tf_example import MAX_VALUES, encode_example, parse_example
from vlm_agent.datasets.formats.tfrecord import read_records, write_records
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.sources import BadRecord, androidcontrol
from vlm_agent.episodes import Action
from vlm_agent.files.png import _chunk

SAMPLE = Path(__file__).parents[2] / "data/agents_2025/android_control"
FILES = sorted(SAMPLE.glob("android_control-*"))


@cache
def payloads() -> list[bytes]:
    return [record.payload for path in FILES for record in read_records(path)]


def features(number: int = 0) -> dict[str, list]:
    """The features of one of the three episodes, with bytes as bytes."""
    parsed = parse_example(payloads()[number], androidcontrol._KINDS)
    return {
        name: [bytes(value) if kind == "bytes" else value for value in values]
        for name, (kind, values) in parsed.items()
    }


def written(path: Path, *episodes: dict[str, list]) -> Path:
    write_records(path, map(encode_example, episodes))
    return path


def changed(**changes) -> dict[str, list]:
    """The features of the first episode with other values: those of a list, or name → {number: value}."""
    content = features()
    for name, change in changes.items():
        if isinstance(change, dict):
            for number, value in change.items():
                content[name][number] = value
        else:
            content[name] = change
    return content


def test_the_published_files_are_stored_as_expected():
    assert agents_2025_data.android_control(SAMPLE) == 0


def test_the_shared_files_are_stored_as_expected(shared):
    assert agents_2025_data.android_control(shared / "data/agents_2025/android_control") == 0


def test_the_command_of_the_documentation_keeps_splits_groups_and_pngs(tmp_path, capsys):
    options = ["--splits", str(SAMPLE / "splits.json"), "--groups", str(SAMPLE / "test_subsplits.json")]
    convert = ["convert", "--source", "androidcontrol", "--input", str(SAMPLE), "--output", str(tmp_path / "ac")]
    assert main([*convert, *options, "--workers", "1"]) == OK
    shards = ShardDataset(tmp_path / "ac", split="test")
    assert list(shards.ids) == ["990003"]
    assert [step["screenshot"]["bytes"] for step in shards.row(0)["steps"]] == features(2)["screenshots"]
    assert json.loads((tmp_path / "ac/groups.json").read_text())["IDD"] == ["990003"]
    assert main(["inspect", str(tmp_path / "ac")]) == OK


def test_another_format_decodes_the_screens(tmp_path):
    converted(FILES[0], output=tmp_path / "ac", source="androidcontrol", screens=ScreenFormat(max_pixels=60_000))
    (episode,) = ShardDataset(tmp_path / "ac")
    assert all(height * width <= 60_000 for height, width in (step.size for step in episode.steps))


def test_a_kept_png_without_pixels_costs_its_episode(tmp_path):
    png = features()["screenshots"][1]
    empty = png[:33] + _chunk(b"IDAT", b"") + png[-12:]
    path = written(tmp_path / "android_control-00000-of-00001", changed(screenshots={1: empty}), features(1))
    _, _, lines, _ = converted(path, output=tmp_path / "out", source="androidcontrol")
    assert list(ShardDataset(tmp_path / "out").ids) == ["990002"]
    assert {line["record"] for line in lines} == {0}
    assert any("step 1: the screen cannot be decoded" in line["reason"] for line in lines)


def test_the_wrong_source_names_the_right_one(tmp_path, capsys):
    for paths in ([SAMPLE], FILES):
        assert main(["convert", "--input", *map(str, paths), "--output", str(tmp_path / "x")]) == FAILED
        assert "use --source androidcontrol" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "finger"), [("up", "down"), ("down", "up"), ("left", "right"), ("right", "left")])
def test_the_finger_of_a_scroll_goes_opposite_to_the_content(tmp_path, content, finger):
    action = json.dumps({"action_type": "scroll", "direction": content}).encode()
    steps = list(androidcontrol.read_steps(written(tmp_path / "x", changed(actions={3: action}))))
    assert steps[3].step.action.direction == finger


def test_training_reads_visible_elements_with_an_extent_and_scorers_all():
    _, first, *_ = androidcontrol.read_steps(FILES[0])
    shown = {element.text for element in first.step.elements}
    assert first.step.tree is not None
    hidden = [element for element in first.step.tree if not element.is_shown]
    assert len(first.step.elements) + len(hidden) == len(first.step.tree)
    assert "below the screen" not in shown
    assert "below the screen" in {element.text for element in hidden}


def test_an_empty_tree_and_a_missing_last_screen_are_no_errors(tmp_path):
    bare = changed(accessibility_trees={2: b""})
    short = features()
    for name in ("screenshots", "accessibility_trees", "screenshot_widths", "screenshot_heights"):
        short[name] = short[name][:-1]
    whole = list(androidcontrol.read_steps(written(tmp_path / "bare", bare)))
    assert whole[2].step.tree == ()
    assert whole[-1].step.action == Action.complete()
    cut = list(androidcontrol.read_steps(written(tmp_path / "short", short)))
    assert [one.step.action for one in cut] == [one.step.action for one in whole[:-1]]
    assert {one.episode_length for one in cut} == {8}


def wait(**keys) -> dict[int, bytes]:
    return {3: json.dumps({"action_type": "click", "x": 1, "y": 1} | keys).encode()}


@cache
def damages() -> dict[str, tuple[dict, str]]:
    whole = features()
    png = whole["screenshots"][1]
    broken = png[:200] + bytes([png[200] ^ 1]) + png[201:]
    return {
        "a feature is missing": ({"goal": None}, "missing field goal"),
        "an action too many": (
            {"actions": [*whole["actions"], *whole["actions"]]},
            "screenshots has 9 values and actions 16; expected 17 screens",
        ),
        "a tree too few": (
            {"accessibility_trees": whole["accessibility_trees"][1:]},
            "accessibility_trees has 8 values, expected 9: 8 actions, 9 screens",
        ),
        "an instruction too few": (
            {"step_instructions": whole["step_instructions"][1:]},
            "step_instructions has 7 values, expected 8",
        ),
        "no action": ({"actions": []}, "actions has 0 values"),
        "no JSON": ({"actions": {3: b"{"}}, "actions 3: the action is not JSON"),
        "nested too deep": ({"actions": {3: b"[" * 60_000}}, "actions 3: the action is not JSON"),
        "no object": ({"actions": {3: b"[]"}}, "actions 3: the step is"),
        "an unknown type": ({"actions": wait(action_type="fly")}, "actions 3: action_type 'fly' is unknown"),
        "no direction": ({"actions": wait(action_type="scroll")}, "actions 3: missing key direction"),
        "a wrong direction": (
            {"actions": wait(action_type="scroll", direction="in")},
            "actions 3: direction 'in' is unknown",
        ),
        "a point far outside": (
            {"actions": wait(x=5000)},
            r"actions 3: the point \(x, y\) = \(5000, 1\) on 1080×2400 pixels",
        ),
        "a point that is not a number": ({"actions": wait(x="5")}, r"actions 3: the point \(x, y\) holds '5'"),
        "a text that is no text": (
            {"actions": wait(action_type="input_text", text=7)},
            "actions 3: text holds 7, expected a string",
        ),
        "half a character": ({"step_instructions": {2: b"\xc3"}}, "step_instructions is not UTF-8"),
        "a broken tree": ({"accessibility_trees": {4: b"\x0a\xff"}}, "accessibility_trees 4: "),
        "too many nodes": (
            {"accessibility_trees": {4: b"\x0a\x00" * (MAX_NODES + 1)}},
            f"accessibility_trees 4: it has more than {MAX_NODES}",
        ),
        "a damaged screen": ({"screenshots": {1: broken}}, "the screen screenshots 1 cannot be read"),
        "half a screen": ({"screenshots": {1: png[:200]}}, "the screen screenshots 1 cannot be read"),
        "no PNG": ({"screenshots": {1: b"GIF89a"}}, "the screen screenshots 1 is not a PNG"),
        "another size": ({"screenshot_widths": {5: 1081}}, "screenshots 5 has 2400×1080 pixels, but .* 2400×1081"),
        "no size": ({"screenshot_widths": {5: 0}}, "screenshot_heights and screenshot_widths 5 are 2400 and 0"),
        "two ids": ({"episode_id": [1, 2]}, "episode_id has 2 values"),
        "texts as numbers": ({"goal": [1]}, "goal is a list of int64, expected bytes"),
        "too many values": (
            {"step_instructions": [b""] * (MAX_VALUES + 1)},
            "step_instructions: a feature has more than",
        ),
    }


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory) -> list[dict]:
    """Every damaged episode in one file, between two sound ones."""
    folder = tmp_path_factory.mktemp("damaged")
    episodes = [features(1)]
    for number, (changes, _) in enumerate(damages().values()):
        one = changed(**{"episode_id": [number]} | changes)
        episodes.append({name: values for name, values in one.items() if values is not None})
    path = written(folder / "android_control-00000-of-00001", *episodes, features(2))
    _, _, lines, _ = converted(path, output=folder / "out", source="androidcontrol")
    assert sorted(ShardDataset(folder / "out").ids) == ["990002", "990003"]
    return lines


@pytest.mark.parametrize("name", damages())
def test_a_damaged_episode_is_quarantined_with_its_reason_and_the_others_are_kept(quarantine, name):
    number = list(damages()).index(name)
    (line,) = (line for line in quarantine if line["record"] == number + 1)
    assert line["file"].endswith("android_control-00000-of-00001")
    assert re.search(damages()[name][1], line["reason"]), line["reason"]
    assert line["steps"] == 9


def test_a_cut_file_keeps_the_episodes_before_the_cut(tmp_path):
    path = tmp_path / "android_control-00000-of-00001"
    path.write_bytes(FILES[1].read_bytes()[:-2000])
    found = list(androidcontrol.read_steps(path))
    assert {one.episode_id for one in found if not isinstance(one, BadRecord)} == {"990002"}
    assert isinstance(found[-1], BadRecord)
    assert found[-1].ends_file


def test_the_damaged_command_of_the_golden_script_finds_a_lost_episode(tmp_path, capsys, monkeypatch):
    written(tmp_path / "sound", features(0))
    (tmp_path / "cut").write_bytes(FILES[1].read_bytes()[:300])
    assert agents_2025_data.damaged(tmp_path) == 0
    assert "sound: 9 step(s) of 1 episode(s)" in capsys.readouterr().out
    monkeypatch.setattr(agents_2025_data, "_tried", lambda files: ({}, ["lost"]) if len(files) > 1 else ({"1": 9}, []))
    assert agents_2025_data.damaged(tmp_path) == 1
