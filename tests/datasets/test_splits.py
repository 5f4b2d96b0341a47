import json

import pytest

from vlm_agent.datasets.selection import read_splits
from vlm_agent.errors import DatasetError

AMBIGUOUS = 246  # in the four files there; each would leak


def _file(tmp_path, content):
    path = tmp_path / "splits.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("validation", ["validation", "val"])
def test_official_and_auto_ui_labels_are_read_alike(tmp_path, validation):
    path = _file(tmp_path, {"train": ["1", "2"], validation: ["3"], "test": ["4"]})
    assert read_splits([path]).labels == {"1": "train", "2": "train", "3": "validation", "4": "test"}


def test_an_id_is_a_number_in_androidcontrol_and_a_file_in_gui_odyssey(tmp_path):
    assert read_splits([_file(tmp_path, {"train": [17], "test": ["0099.json"]})]).labels == {
        "17": "train",
        "0099": "test",
    }


def test_an_id_named_twice_in_one_split_is_fine(tmp_path):
    assert read_splits([_file(tmp_path, {"train": ["1", "1"]})]).split_of("1") == "train"


def test_an_id_in_two_splits_belongs_to_neither(tmp_path):
    splits = read_splits([_file(tmp_path, {"train": ["1", "2"], "test": ["2"]})])
    assert splits.ambiguous == {"2"}
    assert [splits.split_of(id_) for id_ in ("1", "2", "3")] == ["train", None, None]


def test_several_files_are_read_as_one(tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"train": ["3"], "test": ["1"]}))
    splits = read_splits([_file(tmp_path, {"train": ["1"], "val": ["2"]}), other])
    assert [splits.split_of(id_) for id_ in ("1", "2", "3")] == [None, "validation", "train"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("not json", "splits.json is damaged"),
        ("[]", "should be an object"),
        ({"trian": []}, "'trian' is unknown; use train, validation, test, val"),
        ({"train": [1.5]}, "should be a valid"),
        ({"train": "17"}, "should be a valid array"),
    ],
)
def test_a_file_that_is_not_a_split_file_is_refused_with_the_reason(tmp_path, content, reason):
    with pytest.raises(DatasetError, match=reason):
        read_splits([_file(tmp_path, content)])


def test_a_missing_split_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"splits\.json is missing; name a JSON file that maps each split"):
        read_splits([tmp_path / "splits.json"])


def test_auto_uis_own_files_are_read(shared):
    labels = read_splits([shared / "data/aitw_splits/general.json"]).labels
    assert [list(labels.values()).count(label) for label in ("train", "validation", "test")] == [7580, 948, 948]


def test_auto_uis_files_put_some_episodes_into_two_splits(shared):
    splits = read_splits(sorted((shared / "data/aitw_splits").glob("*.json")))
    assert len(splits.ambiguous) == AMBIGUOUS
