import errno
import json
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.data.made_episodes import ACTIONS, assert_same_episode, made_episode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlm_agent.datasets.formats.json_list import MAX_JSON_BYTES
from vlm_agent.datasets.formats.tfrecord import read_records
from vlm_agent.datasets.sources import BadRecord, EpisodeStep
from vlm_agent.datasets.sources.aitw import parse_step
from vlm_agent.datasets.sources.aitz import SOURCE, is_data, read_steps, split_of, subset_of
from vlm_agent.datasets.sources.checks import MAX_SIDE
from vlm_agent.episodes import Episode, Notes
from vlm_agent.errors import DatasetError
from vlm_agent.files.png import encode_png

NAME = "GENERAL-7.json"
SIZE = (50, 20)
TEXTS = {"screen": "ein Bild 🙂", "think": "warum", "action": "was", "result": "wozu"}
TAP, TYPE, BACK = 0, 2, 3
"""Which step of `ACTIONS` does what."""


def _steps_of(episode: Episode) -> list[dict]:
    """The episode as AitZ writes it."""
    height, width = episode.steps[0].size
    scale = np.array([height, width, height, width])
    return [
        {
            "episode_id": episode.id,
            "episode_length": len(episode),
            "step_id": number,
            "instruction": episode.goal,
            "ui_positions": json.dumps([(np.array(item.box) * scale).tolist() for item in step.elements]),
            "ui_text": json.dumps([item.text for item in step.elements], ensure_ascii=False),
            "ui_types": json.dumps([item.type for item in step.elements]),
            "result_action_type": int(step.action.kind),
            "result_action_text": step.action.text,
            "result_touch_yx": json.dumps(step.action.touch_yx),
            "result_lift_yx": json.dumps(step.action.lift_yx),
            "image_path": f"general/GENERAL-7/{number}.png",
            "coat_screen_desc": TEXTS["screen"],
            "coat_action_think": TEXTS["think"],
            "coat_action_desc": TEXTS["action"],
            "coat_action_result": TEXTS["result"],
        }
        for number, step in enumerate(episode.steps)
    ]


def _write(folder: Path, steps: object, episode: Episode | None = None) -> Path:
    for number, step in enumerate((episode or _episode()).steps):
        (folder / f"{number}.png").write_bytes(encode_png(step.screenshot))
    text = steps if isinstance(steps, str) else json.dumps(steps)
    (folder / NAME).write_text(text, encoding="utf-8")
    return folder / NAME


def _episode() -> Episode:
    """Without activity and phone, which AitZ does not tell, and with the texts, which it does."""
    episode = made_episode(size=SIZE)
    steps = tuple(replace(step, activity="", notes=TEXTS) for step in episode.steps)
    return replace(episode, steps=steps, device_type="", android_api_level=0)


def _read(path: Path) -> tuple[list[EpisodeStep], list[BadRecord]]:
    items = list(read_steps(path))
    assert [item.record for item in items] == list(range(len(items)))
    assert not any(isinstance(item, BadRecord) and item.ends_file for item in items[:-1])
    bad = [item for item in items if isinstance(item, BadRecord)]
    assert all(item.file == path and item.reason for item in bad)
    return [item for item in items if isinstance(item, EpisodeStep)], bad


def _read_damaged(folder: Path, number: int, **changes) -> BadRecord:
    """The result for the one changed step; all others must be read."""
    steps = _steps_of(_episode())
    steps[number].update(changes)
    good, (bad,) = _read(_write(folder, steps))
    assert [step.step_id for step in good] == [n for n in range(len(ACTIONS)) if n != number]
    assert bad.record == number and not bad.ends_file
    return bad


def test_the_real_episode_is_the_one_of_the_tfrecord(shared):
    record_file = shared / "data/aitw_tfrecord/google_apps-00000-of-00001"
    path = shared / "data/aitz_episode/GOOGLE_APPS-523638528775825151.json"
    published = json.loads(path.read_text())
    for entry, record in zip(read_steps(path), read_records(record_file), strict=True):
        expected = parse_step(record, record_file, "google_apps")
        for name in ("record", "episode_id", "subset", "step_id", "episode_length", "goal", "split"):
            assert getattr(entry, name) == getattr(expected, name), name
        assert entry.step.action == expected.step.action
        assert entry.step.elements == expected.step.elements
        assert entry.step.screenshot.dtype == np.uint8
        assert np.array_equal(entry.step.screenshot, expected.step.screenshot)
        assert entry.step.notes == {
            "screen": published[entry.record]["coat_screen_desc"],
            "think": published[entry.record]["coat_action_think"],
            "action": published[entry.record]["coat_action_desc"],
            "result": published[entry.record]["coat_action_result"],
        }


def test_every_kind_of_action_and_every_text_is_read(tmp_path):
    good, bad = _read(_write(tmp_path, _steps_of(_episode())))
    first = good[0]
    read = Episode(first.episode_id, first.subset, first.goal, tuple(entry.step for entry in good))
    assert not bad
    assert_same_episode(read, _episode())
    assert {entry.step.notes for entry in good} == {Notes(TEXTS)}


@pytest.mark.parametrize("indent", [None, 4])
def test_offset_and_fingerprint_are_those_of_the_steps_own_bytes(tmp_path, indent):
    steps = _steps_of(_episode())
    path = _write(tmp_path, json.dumps([*steps, steps[0]], ensure_ascii=False, indent=indent))
    good, _ = _read(path)
    data = path.read_bytes()
    for entry, following in zip(good, [*good[1:], None], strict=True):
        source = data[entry.offset : following and following.offset].rstrip(b", \n]")
        assert json.loads(source) == steps[entry.step_id]
        assert entry.fingerprint == zlib.crc32(source)
    assert good[0].fingerprint == good[-1].fingerprint


def test_texts_that_are_absent_or_null_are_empty_and_without_any_there_are_none(tmp_path):
    steps = _steps_of(_episode())
    keys = [key for key in steps[0] if key.startswith("coat")]
    for key in keys:
        del steps[0][key]
    steps[1].update(dict.fromkeys(keys))
    steps[2]["coat_action_think"] = None
    del steps[2]["coat_screen_desc"]
    good, _ = _read(_write(tmp_path, steps))
    assert [entry.step.notes for entry in good[:4]] == [{}, {}, {"action": "was", "result": "wozu"}, TEXTS]


def test_what_the_action_does_not_use_is_not_read(tmp_path):
    steps = _steps_of(_episode())
    steps[BACK].update(result_touch_yx="none", result_action_text=3)
    good, bad = _read(_write(tmp_path, steps))
    assert not bad and good[BACK].step.action == ACTIONS[BACK]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("GOOGLE_APPS-523638528775825151.json", True),
        ("WEB_SHOPPING-1.json", True),
        ("google_apps-1.json", False),
        ("GOOGLE_APPS-1_0.png", False),
        ("GENERAL.json", False),
        ("GENERAL-.json", False),
        ("OTHER-1.json", False),
        ("GENERAL-1.json.partial", False),
        ("general.json", False),
    ],
)
def test_an_episode_is_known_by_its_name(name, is_one):
    assert is_data(Path("any") / name) == is_one
    if not is_one:
        with pytest.raises(DatasetError, match="<SUBSET>-<episode>"):
            subset_of(Path(name))


def test_the_digest_of_an_input_does_not_depend_on_the_order_of_the_file_system(tmp_path, monkeypatch):
    path = _write(tmp_path, _steps_of(_episode()))
    listed = sorted(path.parent.glob("*_*.png"))
    for order in (listed, listed[::-1]):
        monkeypatch.setattr(Path, "glob", lambda folder, pattern, order=order: iter(order))
        (input_,) = SOURCE.inputs([path])
        assert input_.files == (path, *listed)


def test_the_subset_is_in_the_name():
    assert subset_of(Path("WEB_SHOPPING-12.json")) == "web_shopping"


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("train/general/GENERAL-7", "train"),
        ("test/general/GENERAL-7", "test"),
        ("val/general/GENERAL-7", "validation"),
        ("validation/general/GENERAL-7", "validation"),
        ("other/general/GENERAL-7", None),
        ("train/single/GENERAL-7", None),
        ("train/general", None),
        ("train", None),
    ],
)
def test_the_split_comes_from_the_published_folders_alone(tmp_path, folder, split):
    (tmp_path / folder).mkdir(parents=True)
    path = _write(tmp_path / folder, _steps_of(_episode()))
    assert split_of(path) == split
    assert next(read_steps(path)).split == split


def test_a_file_system_that_fails_for_a_moment_quarantines_nothing(tmp_path, monkeypatch):
    path = _write(tmp_path, _steps_of(_episode()))
    real = Path.open

    def fails(self, *arguments, **options):
        if self.suffix == ".png":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(OSError, match="Stale"):
        list(read_steps(path))


@pytest.mark.parametrize(
    ("touch", "lift", "read", "moved"),
    [
        ((-0.0011, 0.5), (0.5, 0.5), ((0.0, 0.5), (0.5, 0.5)), 1),
        ((0.25, 1.01), (-0.01, -0.01), ((0.25, 1.0), (0.0, 0.0)), 2),
        ((0.0, 1.0), (1.0, 0.0), ((0.0, 1.0), (1.0, 0.0)), 0),
    ],
)
def test_points_a_hair_outside_the_screen_are_at_its_edge_and_counted(tmp_path, touch, lift, read, moved):
    steps = _steps_of(_episode())
    steps[TAP] |= {"result_touch_yx": json.dumps(touch), "result_lift_yx": json.dumps(lift)}
    good, bad = _read(_write(tmp_path, steps))
    assert not bad
    assert (good[TAP].step.action.touch_yx, good[TAP].step.action.lift_yx) == read
    assert [step.moved_points for step in good] == [moved] + [0] * (len(good) - 1)


@pytest.mark.parametrize(
    ("number", "changes", "reason"),
    [
        (TAP, {"episode_id": 7}, "episode_id holds 7, expected a string"),
        (TAP, {"episode_id": ""}, "episode_id is empty"),
        (TAP, {"episode_length": True}, "episode_length is True"),
        (TAP, {"episode_length": 0}, "of episode_length 0"),
        (TAP, {"step_id": -1}, "step_id -1"),
        (TAP, {"step_id": 10**4000}, "step_id is 1000"),
        (TAP, {"step_id": 0.0}, "step_id is 0.0"),
        (TAP, {"instruction": None}, "instruction holds None"),
        (TAP, {"instruction": "\ud800"}, "instruction is not valid Unicode"),
        (TAP, {"result_action_type": "4"}, "result_action_type is '4'"),
        (TAP, {"result_action_type": 9}, "result_action_type 9 is unknown"),
        (TYPE, {"result_action_text": ["a"]}, "result_action_text holds"),
        (TYPE, {"result_action_text": "\udfff"}, "result_action_text is not valid Unicode"),
        (TAP, {"result_touch_yx": [0.5, 0.5]}, "result_touch_yx holds [0.5, 0.5], expected a string"),
        (TAP, {"result_touch_yx": "[0.5]"}, "result_touch_yx has 1 values"),
        (TAP, {"result_touch_yx": "[0.5, 1.5]"}, "result_touch_yx is (0.5, 1.5)"),
        (TAP, {"result_touch_yx": "[0.5, 1.011]"}, "or at most 0.01 outside it"),
        (TAP, {"result_lift_yx": "[-0.011, 0.5]"}, "or at most 0.01 outside it"),
        (TAP, {"result_touch_yx": "[-1.0, -1.0]"}, "result_touch_yx is (-1.0, -1.0)"),
        (TAP, {"result_lift_yx": "[0.5, NaN]"}, "result_lift_yx holds nan"),
        (TAP, {"result_lift_yx": "[0.5, 1e999]"}, "result_lift_yx holds inf"),
        (TAP, {"result_lift_yx": "[0.5, true]"}, "result_lift_yx holds True"),
        (TAP, {"result_lift_yx": '["0.5", 0.5]'}, "result_lift_yx holds '0.5'"),
        (TAP, {"result_lift_yx": "(0.5, 0.5)"}, "result_lift_yx is '(0.5, 0.5)', expected a list as JSON"),
        (TAP, {"result_lift_yx": "{}"}, "result_lift_yx holds {}, expected a list"),
        (TAP, {"result_lift_yx": ""}, "result_lift_yx is ''"),
        (TAP, {"ui_positions": "[" * 100_000}, "ui_positions is '[[[["),
        (TAP, {"ui_positions": "[[1, 2, 3]]"}, "ui_positions holds [1, 2, 3]"),
        (TAP, {"ui_positions": "[1, 2, 3, 4]"}, "ui_positions holds 1"),
        (TAP, {"ui_positions": "[[1, 2, 3, [4]]]"}, "ui_positions holds [4]"),
        (TAP, {"ui_positions": f"[[1, 2, 3, {10**400}]]"}, "ui_positions holds 1000"),
        (TAP, {"ui_positions": "[[1, 2, 3, 4]]"}, "4 positions, 0 texts and 0 ui_types"),
        (TAP, {"ui_text": '["a"]'}, "0 positions, 1 texts and 0 ui_types"),
        (TAP, {"ui_types": "[null]"}, "ui_types holds None"),
        (TAP, {"ui_text": r'["\ud800"]'}, "ui_text is not valid Unicode"),
        (TAP, {"coat_action_think": 1}, "coat_action_think holds 1"),
        (TAP, {"image_path": 1}, "image_path holds 1"),
        (TAP, {"image_path": ""}, "'' does not name a file"),
        (TAP, {"image_path": "a/.."}, "'a/..' does not name a file"),
        (TAP, {"image_path": "a\x00.png"}, "does not name a file"),
        (TAP, {"image_path": "x" * 10_000}, "does not name a file"),
        (TAP, {"image_path": "gone.png"}, "the screen gone.png is missing"),
        (TAP, {"image_path": NAME}, f"the screen {NAME} is not a PNG"),
    ],
)
def test_a_hostile_value_costs_its_step_and_no_other(tmp_path, number, changes, reason):
    assert reason in _read_damaged(tmp_path, number, **changes).reason


@pytest.mark.parametrize("key", [key for key in _steps_of(_episode())[0] if not key.startswith("coat")])
def test_a_missing_key_is_named(tmp_path, key):
    steps = _steps_of(_episode())
    del steps[1][key]
    good, (bad,) = _read(_write(tmp_path, steps))
    assert len(good) == len(ACTIONS) - 1 and bad.reason == f"missing key {key}"


@pytest.mark.parametrize("value", [None, 1, "x", [], float("nan")])
def test_a_step_that_is_not_an_object_is_refused_alone(tmp_path, value):
    steps = _steps_of(_episode())
    steps[1] = value
    good, (bad,) = _read(_write(tmp_path, steps))
    assert len(good) == len(ACTIONS) - 1 and "expected an object" in bad.reason


@pytest.mark.parametrize("name", ["../secret.png", "..\\secret.png", "/{folder}/secret.png"])
def test_no_image_path_leads_out_of_the_folder(tmp_path, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.png").write_bytes(encode_png(_episode().steps[0].screenshot))
    reason = _read_damaged(inside, TAP, image_path=name.format(folder=tmp_path)).reason
    assert reason == "the screen secret.png is missing"


def _png(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG with a good header and no pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", b""), (b"IEND", b""))
    parts = [struct.pack(">I", len(d)) + name + d + struct.pack(">I", zlib.crc32(name + d)) for name, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "is not a PNG"),
        (lambda data: b"GIF89a" + data, "is not a PNG"),
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: data[:-16], "cannot be read"),
        (lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], "cannot be read"),
        (lambda data: _png(20, 50), "cannot be read"),
        (lambda data: _png(MAX_SIDE + 1, 1), f"1×{MAX_SIDE + 1} pixels, more than any phone"),
        (lambda data: _png(8_000, 8_000), "8000×8000 pixels, more than any phone"),
        (lambda data: _png(1 << 30, 1 << 30), "larger than any phone's"),
        (lambda data: _png(20, 50, depth=16, colour=0), "mode I;16"),
    ],
)
def test_a_screen_that_is_damaged_or_too_large_costs_its_step_and_no_other(tmp_path, damage, reason):
    path = _write(tmp_path, _steps_of(_episode()))
    screen = tmp_path / "1.png"
    screen.write_bytes(damage(screen.read_bytes()))
    good, (bad,) = _read(path)
    assert len(good) == len(ACTIONS) - 1
    assert bad.record == 1 and "the screen 1.png" in bad.reason and reason in bad.reason


def test_a_folder_in_place_of_a_screen_is_refused(tmp_path):
    (tmp_path / "other.png").mkdir()
    assert "is missing" in _read_damaged(tmp_path, TAP, image_path="other.png").reason


@pytest.mark.parametrize(
    "changed", [lambda image: image.convert("RGBA"), lambda image: image.quantize(4), lambda image: image.convert("L")]
)
def test_a_png_of_another_kind_becomes_rgb(tmp_path, changed):
    path = _write(tmp_path, _steps_of(_episode()))
    screen = np.full((*SIZE, 3), 200, np.uint8)
    changed(Image.fromarray(screen)).save(tmp_path / "1.png")
    good, _ = _read(path)
    assert np.array_equal(good[1].step.screenshot, screen)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        (" \n", "truncated"),
        ("[]", "the list is empty"),
        ("{}", "found '{', expected '['"),
        ("null", "found 'n', expected '['"),
        ("[", "invalid JSON"),
        ("\ufeff[]", "expected '['"),
        ("[" * 100_000, "nested too deep"),
        (" " * (MAX_JSON_BYTES + 1), "larger than the limit"),
    ],
)
def test_a_file_without_a_list_of_steps_is_one_bad_record(tmp_path, text, reason):
    good, (bad,) = _read(_write(tmp_path, text))
    assert not good
    assert bad.ends_file and bad.record == 0 and reason in bad.reason


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ("", "truncated"),
        (",", "invalid JSON"),
        (", ]", "ends where an item is expected"),
        ("; 1]", "found ';', expected ','"),
        (", {", "invalid JSON"),
        (f", {'9' * 5000}]", "invalid JSON"),
        ("] []", "more text after the end"),
    ],
)
def test_what_stands_before_the_damage_is_kept(tmp_path, behind, reason):
    whole = json.dumps(_steps_of(_episode()), ensure_ascii=False)
    good, (bad,) = _read(_write(tmp_path, whole[:-1] + behind))
    assert len(good) == len(ACTIONS)
    assert bad.ends_file and bad.record == len(ACTIONS) and reason in bad.reason


def test_bytes_that_are_not_utf8_cost_their_step_and_no_other(tmp_path):
    path = _write(tmp_path, json.dumps(_steps_of(_episode()), ensure_ascii=False))
    data = path.read_bytes()
    place = data.index("🙂".encode())
    path.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
    good, (bad,) = _read(path)
    assert [step.step_id for step in good] == list(range(1, len(ACTIONS)))
    assert "instruction is not valid Unicode" in bad.reason
    data = path.read_bytes()
    assert all(data[step.offset : step.offset + 1] == b"{" for step in good)


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    (tmp_path / NAME).mkdir()
    for path in (tmp_path / NAME, tmp_path / "GENERAL-8.json"):
        with pytest.raises(DatasetError, match="is not a file"):
            next(read_steps(path))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aitz")
    _write(folder, "[]")
    return folder


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_value_under_any_key_is_read_or_costs_its_step_alone(folder, data):
    steps = _steps_of(_episode())
    number = data.draw(st.integers(0, len(steps) - 1))
    value = data.draw(_json | _json.map(json.dumps))
    steps[number][data.draw(st.sampled_from(sorted(steps[number])))] = value
    (folder / NAME).write_text(json.dumps(steps), encoding="utf-8")
    good, bad = _read(folder / NAME)
    assert len(good) + len(bad) == len(steps)
    assert {item.record for item in bad} <= {number}


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_file_damaged_anywhere_is_read_or_refused_with_a_reason(folder, data):
    text = bytearray(json.dumps(_steps_of(_episode())[:3], ensure_ascii=False).encode())
    start = data.draw(st.integers(0, len(text) - 1))
    text[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (folder / NAME).write_bytes(text)
    good, bad = _read(folder / NAME)
    assert len(good) == 3 or bad
