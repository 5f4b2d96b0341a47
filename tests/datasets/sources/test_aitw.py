import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from helpers.data.aitw_episodes import read_episodes
from helpers.data.example_message import Example
from helpers.data.made_episodes import ACTIONS, assert_same_episode, made_episode, made_screen
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlm_agent.datasets.formats.tfrecord import Record, masked_crc32c, write_records
from vlm_agent.datasets.sources import BadRecord, EpisodeStep
from vlm_agent.datasets.sources.aitw import encode_step, parse_step, read_steps, subset_of, write_episodes
from vlm_agent.episodes import Action, Episode, Step, UiElement
from vlm_agent.errors import DatasetError, UserError

NAME = "general-00000-of-00001"


def _records(*episodes):
    return [encode_step(episode, number) for episode in episodes for number in range(len(episode))]


def _parse(payload):
    return parse_step(Record(3, 100, payload, checksum=masked_crc32c(payload)), Path(NAME), "general")


def _read(tmp_path, payloads):
    write_records(tmp_path / NAME, payloads)
    items = list(read_episodes(tmp_path / NAME))
    bad = [item for item in items if isinstance(item, BadRecord)]
    episodes = [item for item in items if isinstance(item, Episode)]
    assert sum(len(episode) for episode in episodes) + len(bad) == len(payloads)
    return episodes, bad


def test_the_real_episode_that_tensorflow_wrote_is_what_aitz_publishes(shared):
    (episode,) = read_episodes(shared / "data/aitw_tfrecord/google_apps-00000-of-00001")
    folder = shared / "data/aitz_episode"
    published = json.loads((folder / f"GOOGLE_APPS-{episode.id}.json").read_text())
    assert (episode.id, episode.subset) == (published[0]["episode_id"], "google_apps")
    assert (episode.device_type, episode.android_api_level) == ("pixel_4", 30)
    assert len(episode) == len(published) == 4
    for number, (step, expected) in enumerate(zip(episode.steps, published, strict=True)):
        picture = np.array(Image.open(folder / f"GOOGLE_APPS-{episode.id}_{number}.png").convert("RGB"))
        assert np.array_equal(step.screenshot, picture)
        assert episode.goal == expected["instruction"]
        scale = np.array([*picture.shape[:2]] * 2)
        boxes = (np.array(json.loads(expected["ui_positions"])) / scale).astype(np.float32)
        assert np.array_equal(np.array([element.box for element in step.elements], np.float32), boxes)
        assert [element.text for element in step.elements] == json.loads(expected["ui_text"])
        assert [element.type for element in step.elements] == json.loads(expected["ui_types"])
        assert step.action.kind == expected["result_action_type"]
        assert step.action.text == expected["result_action_text"]
        assert list(step.action.touch_yx) == json.loads(expected["result_touch_yx"])
        assert list(step.action.lift_yx) == json.loads(expected["result_lift_yx"])


def test_the_real_episode_written_again_reads_the_same(shared, tmp_path):
    (episode,) = read_episodes(shared / "data/aitw_tfrecord/google_apps-00000-of-00001")
    write_episodes(tmp_path / "google_apps-00000-of-00001", [episode])
    (again,) = read_episodes(tmp_path / "google_apps-00000-of-00001")
    assert_same_episode(again, episode)


_fraction = st.floats(0, 1, width=32)
_point = st.tuples(_fraction, _fraction)
_action = st.one_of(
    st.builds(Action.swipe, _point, _point), st.builds(Action.type_text, st.text()), st.sampled_from(ACTIONS)
)
_number = st.floats(width=32, allow_nan=False, allow_infinity=False)
_element = st.builds(UiElement, st.tuples(_number, _number, _number, _number), st.text(), st.text())
_screen = st.builds(made_screen, st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
_steps = st.lists(
    st.builds(Step, _screen, _action, st.lists(_element, max_size=3).map(tuple), st.text()), min_size=1, max_size=4
)
_episode = st.builds(
    Episode, st.text(min_size=1), st.just("single"), st.text(), _steps.map(tuple), st.text(), st.integers(-1, 99)
)


@settings(deadline=None, max_examples=60)
@given(episode=_episode)
def test_any_episode_survives_being_written_and_read(tmp_path_factory, episode):
    path = tmp_path_factory.mktemp("aitw") / "single-00000-of-00001"
    assert write_episodes(path, [episode]) == len(episode)
    (again,) = read_episodes(path)
    assert_same_episode(again, episode)


@pytest.mark.parametrize("action", [Action.long_press(0.1, 0.2), Action.wait(), Action.answer("yes")])
def test_an_action_that_aitw_does_not_have_is_not_written(tmp_path, action):
    episode = Episode("1", "single", "go", (Step(made_screen(4, 2, 0), action),))
    with pytest.raises(DatasetError, match=f"episode 1, step 0: AITW has no action {action.name}"):
        write_episodes(tmp_path / "single-00000-of-00001", [episode])
    assert not list(tmp_path.iterdir())


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_episodes(tmp_path / name, [made_episode()])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_screen_is_a_view_of_the_record_and_not_a_copy():
    payload = encode_step(made_episode(), 0)
    screenshot = _parse(payload).step.screenshot
    assert np.shares_memory(screenshot, np.frombuffer(payload, np.uint8))


def test_an_episode_without_pixels_is_not_written(tmp_path):
    step = Step(None, Action.complete())
    with pytest.raises(DatasetError, match="episode 1, step 0 has no pixels"):
        write_episodes(tmp_path / NAME, [Episode("1", "general", "", (step,))])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "subset"),
    [
        ("google_apps-00000-of-00001", "google_apps"),
        ("web_shopping.tfrecord", "web_shopping"),
        ("install/part-00000-of-00009", "install"),
        ("install/single-00000-of-00001", "single"),
    ],
)
def test_the_subset_is_in_the_files_name_or_its_folders(tmp_path, path, subset):
    assert subset_of(tmp_path / path) == subset


@pytest.mark.parametrize("name", ["part-00000-of-00001", "generalities-00000-of-00001"])
def test_a_file_name_without_a_subset_is_refused_with_the_remedy(tmp_path, name):
    with pytest.raises(DatasetError, match="rename the file to <subset>-00000-of-00001"):
        subset_of(tmp_path / name)


def _spoil(number=0, **changes):
    """The record of a step, with features replaced; None removes one."""
    message = Example.FromString(encode_step(made_episode(), number))
    for name, value in changes.items():
        feature = message.features.feature[name.replace("__", "/")]
        if value is None:
            del message.features.feature[name.replace("__", "/")]
        elif isinstance(value[0], bytes):
            feature.bytes_list.value[:] = value
        elif isinstance(value[0], float):
            feature.float_list.value[:] = value
        else:
            feature.int64_list.value[:] = value
    return message.SerializeToString()


@pytest.mark.parametrize("name", sorted(Example.FromString(encode_step(made_episode(), 0)).features.feature))
def test_a_missing_field_is_named(name):
    with pytest.raises(DatasetError, match=f"missing field {name}$"):
        _parse(_spoil(**{name: None}))


@pytest.mark.parametrize(
    ("number", "changes", "reason"),
    [
        (0, {"image__encoded": [b"x" * 100]}, "100 bytes, expected 40×24×3 = 2880"),
        (0, {"image__encoded": [b"x", b"y"]}, "2 values, expected 1"),
        (0, {"image__height": [41]}, "2880 bytes, expected 41×24×3"),
        (0, {"image__height": [0]}, "not the size"),
        (0, {"image__height": [-40], "image__width": [-24]}, "not the size"),
        (0, {"image__height": [2**62]}, "not the size"),
        (0, {"image__height": [16_384], "image__width": [16_384]}, "not the size"),
        (0, {"image__height": [40, 40]}, "image/height has 2 values"),
        (0, {"image__height": [40.0]}, "image/height is a list of float, expected int64"),
        (0, {"image__channels": [4]}, "channels is 4"),
        (0, {"results__action_type": [2]}, "action_type 2 is unknown; expected one of 3 TYPE"),
        (0, {"results__action_type": [100]}, "action_type 100 is unknown; expected one of 3 TYPE"),
        (0, {"results__yx_touch": [math.nan, 0.5]}, "yx_touch holds a number that is not finite"),
        (0, {"results__yx_touch": [math.inf, 0.5]}, "yx_touch holds a number that is not finite"),
        (0, {"results__yx_touch": [0.5, 1.5]}, r"yx_touch is \(0.5, 1.5\)"),
        (0, {"results__yx_lift": [-1.0, -1.0]}, "yx_lift is"),
        (0, {"results__yx_lift": [0.5]}, "1 values, expected 2"),
        (2, {"results__type_action": [b"\xff\xfe"]}, "type_action is not UTF-8"),
        (0, {"goal_info": [b"\xc3"]}, "goal_info is not UTF-8"),
        (0, {"goal_info": [b"one", b"two"]}, "goal_info has 2 values"),
        (0, {"episode_id": [b""]}, "episode_id is empty"),
        (1, {"image__ui_annotations_positions": [0.1, 0.2, 0.3]}, "3 positions, 1 texts and 1 ui_types"),
        (1, {"image__ui_annotations_text": [b"a", b"b"]}, "4 positions, 2 texts and 1 ui_types"),
        (1, {"image__ui_annotations_positions": [0.1, 0.2, 0.3, math.nan]}, "not finite"),
        (0, {"step_id": [-1]}, "step_id -1 of episode_length 8"),
        (0, {"step_id": [10_000]}, "step_id 10000 of episode_length 8"),
        (0, {"episode_length": [0]}, "step_id 0 of episode_length 0"),
        (0, {"episode_length": [10_001]}, "step_id 0 of episode_length 10001"),
        (0, {"episode_length": [2**40]}, "episode_length"),
        (0, {"android_api_level": [2**31]}, "android_api_level 2147483648 does not fit"),
        (0, {"android_api_level": [-(2**31) - 1]}, "android_api_level -2147483649 does not fit"),
    ],
)
def test_a_hostile_field_is_refused_with_what_is_wrong(number, changes, reason):
    with pytest.raises(DatasetError, match=reason):
        _parse(_spoil(number, **changes))


def test_what_the_action_does_not_use_is_not_read():
    step = _parse(_spoil(4, results__yx_touch=[0.3, 0.3], results__type_action=[b"left over"])).step
    assert step.action == Action.press("home")


def test_an_empty_list_of_bytes_is_an_empty_text():
    message = Example.FromString(encode_step(made_episode(), 0))
    message.features.feature["current_activity"].Clear()
    assert _parse(message.SerializeToString()).step.activity == ""


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_record_damaged_anywhere_is_read_or_refused_with_a_reason(data):
    payload = bytearray(encode_step(made_episode(size=(2, 2)), data.draw(st.integers(0, 7))))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        _parse(bytes(payload))
    except UserError as error:
        assert str(error)


def test_a_step_knows_its_place_its_episode_and_its_fingerprint():
    payload = encode_step(made_episode("7"), 2)
    step = _parse(payload)
    assert (step.file, step.record, step.offset, step.subset) == (Path(NAME), 3, 100, "general")
    assert (step.episode_id, step.step_id, step.episode_length, step.goal) == ("7", 2, 8, "do “7” 🙂")
    assert (step.device_type, step.android_api_level, step.split) == ("pixel_4", 30, None)
    assert step.fingerprint == _parse(payload).fingerprint
    assert step.fingerprint != _parse(encode_step(made_episode("8"), 2)).fingerprint


def test_a_step_beyond_its_episode_is_the_episodes_fault_and_not_the_records():
    assert _parse(_spoil(0, step_id=[8])).step_id == 8


def test_steps_come_in_the_order_of_the_file_with_their_places(tmp_path):
    payloads = _records(made_episode("a"))[::-1]
    write_records(tmp_path / NAME, payloads)
    steps = list(read_steps(tmp_path / NAME))
    assert [(step.record, step.step_id) for step in steps] == [(number, 7 - number) for number in range(8)]
    framing = 16  # a length, its checksum and the payload's
    assert [step.offset for step in steps] == [sum(len(p) + framing for p in payloads[:n]) for n in range(8)]


def test_steps_are_read_from_an_open_file_instead_of_the_path(tmp_path):
    write_episodes(tmp_path / NAME, [made_episode()])
    nowhere = Path("nowhere/general.tfrecord")
    steps = list(read_steps(nowhere, None, io.BytesIO((tmp_path / NAME).read_bytes())))
    assert [step.step_id for step in steps] == list(range(8))
    assert {(step.file, step.subset) for step in steps} == {(nowhere, "general")}


def test_the_bad_record_that_ends_a_file_is_marked(tmp_path):
    write_episodes(tmp_path / NAME, [made_episode("a"), made_episode("b")])
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(data[: len(data) * 3 // 4])
    *good, last = read_steps(tmp_path / NAME)
    assert all(isinstance(step, EpisodeStep) for step in good) and len(good) >= 8
    assert last.ends_file and last.record == len(good) and "truncated" in last.reason
    items = list(read_episodes(tmp_path / NAME))
    assert [item.id for item in items if isinstance(item, Episode)] == ["a"]
    assert [item.record for item in items if isinstance(item, BadRecord) and item.ends_file] == [len(good)]


@pytest.mark.parametrize(
    "notes", [{}, {"screen": "a list", "think": "open it", "action": "tap the first", "result": "it opened"}]
)
def test_the_four_texts_of_chain_of_action_thought_survive(tmp_path, notes):
    step = Step(made_screen(), Action.tap(0.5, 0.5), notes=notes)
    write_episodes(tmp_path / NAME, [Episode("1", "general", "", (step,))])
    (episode,) = read_episodes(tmp_path / NAME)
    assert episode.steps[0].notes == notes


def test_a_bad_record_costs_its_episode_and_no_other(tmp_path):
    first, second, third = (made_episode(id) for id in "abc")
    payloads = _records(first, second, third)
    payloads[10] = payloads[10][:-1]
    episodes, bad = _read(tmp_path, payloads)
    assert [episode.id for episode in episodes] == ["a", "c"]
    assert_same_episode(episodes[1], third)
    assert sorted(item.record for item in bad) == list(range(8, 16))
    reasons = {item.record: item.reason for item in bad}
    assert "bytes" in reasons[10]
    assert reasons[11] == "episode b is discarded: it has only 7 of 8 steps; missing: 2"
    assert (bad[0].file, bad[0].record) == (tmp_path / NAME, 10)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ([0, 1, 2, 3, 4, 5, 6], "it has only 7 of 8 steps; missing: 7"),
        ([1, 2, 3, 4, 5, 6, 7], "it has only 7 of 8 steps; missing: 0"),
        ([5], "it has only 1 of 8 steps; missing: 0, 1, 2, 3, 4, …"),
    ],
)
def test_an_episode_that_is_not_whole_is_left_out_with_the_reason(tmp_path, order, reason):
    payloads = _records(made_episode("a"))
    episodes, bad = _read(tmp_path, [payloads[number] for number in order] + _records(made_episode("b")))
    assert [episode.id for episode in episodes] == ["b"]
    assert {item.reason for item in bad} == {f"episode a is discarded: {reason}"}


@pytest.mark.parametrize("order", [[7, 6, 5, 4, 3, 2, 1, 0], [0, 1, 3, 2, 4, 5, 6, 7]])
def test_steps_out_of_order_are_put_in_order(tmp_path, order):
    payloads = _records(made_episode("a"))
    ((episode,), bad) = _read(tmp_path, [payloads[number] for number in order])
    assert_same_episode(episode, made_episode("a"))
    assert not bad


def test_interleaved_episodes_are_put_back_together(tmp_path):
    pairs = zip(_records(made_episode("a")), _records(made_episode("b")), strict=True)
    episodes, bad = _read(tmp_path, [payload for pair in pairs for payload in pair])
    for episode, id in zip(episodes, "ab", strict=True):
        assert_same_episode(episode, made_episode(id))
    assert not bad


def test_a_record_that_is_there_twice_is_left_out_once(tmp_path):
    payloads = _records(made_episode())
    ((episode,), bad) = _read(tmp_path, [*payloads[:4], payloads[3], *payloads[4:], payloads[7]])
    assert_same_episode(episode, made_episode())
    assert [(item.record, item.reason) for item in bad] == [
        (4, "it repeats step 3 of episode 7 with the same checksum"),
        (9, "it repeats step 7 of episode 7 with the same checksum"),
    ]


def test_two_different_records_of_one_step_quarantine_the_episode(tmp_path):
    payloads = _records(made_episode())
    episodes, bad = _read(tmp_path, [*payloads, _spoil(3, current_activity=[b"another"])])
    assert not episodes
    what = "records 3 and 8 for step 3 differ"
    assert {item.reason for item in bad} == {f"episode 7 is discarded: {what}"}


def test_steps_with_different_lengths_quarantine_the_episode(tmp_path):
    payloads = _records(made_episode())
    payloads[3] = _spoil(3, episode_length=[9])
    episodes, bad = _read(tmp_path, payloads)
    assert not episodes
    assert {item.reason for item in bad} == {"episode 7 is discarded: episode_length changes from 8 to 9"}


def test_an_episode_that_is_there_twice_is_kept_once(tmp_path):
    first, other = _records(made_episode("a")), _records(made_episode("b"))
    episodes, bad = _read(tmp_path, [*first, *other, *first])
    assert [episode.id for episode in episodes] == ["a", "b"]
    assert {item.record for item in bad} == set(range(16, 24))
    assert {item.reason for item in bad} == {"an episode with id a was read before"}
