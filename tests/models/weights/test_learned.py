"""The record of the episodes that a run learned from."""

import pytest

from vlm_agent.errors import DatasetError
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.models.weights.origin import LEARNED_FILE, Learned, copy_learned, read_learned, record_learned


def _run(folder):
    """What `trained` takes for a finished run."""
    (folder / MODEL_FOLDER).mkdir(parents=True)
    (folder / MODEL_FOLDER / "config.json").write_text("{}")
    return folder


def test_the_ids_are_read_back_sorted_and_once(tmp_path):
    record_learned(tmp_path, ["b", "a\nc", "b", "ü"], None)
    assert read_learned(tmp_path) == Learned(["a\nc", "b", "ü"])


def test_the_file_depends_on_the_ids_alone(tmp_path):
    ids = [str(number) for number in range(1000)]
    record_learned(tmp_path / "one", ids, None)
    record_learned(tmp_path / "other", reversed(ids), None)
    assert (tmp_path / "one" / LEARNED_FILE).read_bytes() == (tmp_path / "other" / LEARNED_FILE).read_bytes()


def test_a_run_that_learned_from_drawn_screens_learned_from_no_episode(tmp_path):
    record_learned(tmp_path, (), "phone_vlm_tiny")
    assert read_learned(tmp_path) == Learned([])


def test_unknown_episodes_have_no_file(tmp_path):
    record_learned(tmp_path, None, None)
    assert read_learned(tmp_path) is None


def test_a_run_also_learned_from_the_episodes_of_its_base(tmp_path):
    base = _run(tmp_path / "base")
    record_learned(base, ["a", "b"], None)
    record_learned(_run(tmp_path / "run"), ["b", "c"], str(base))
    assert read_learned(tmp_path / "run") == Learned(["a", "b", "c"])


def test_a_base_without_a_record_is_named_in_all_runs_that_start_from_it(tmp_path):
    base = _run(tmp_path / "base")
    record_learned(_run(tmp_path / "run"), ["c"], str(base))
    record_learned(_run(tmp_path / "next"), ["d"], str(tmp_path / "run"))
    assert read_learned(tmp_path / "next") == Learned(["c", "d"], unknown_base=str(base))


def test_a_copy_has_the_same_record_and_none_where_there_is_none(tmp_path):
    record_learned(tmp_path / "run", ["c"], None)
    for name in ("run", "none"):
        (tmp_path / f"copy of {name}").mkdir()
        copy_learned(tmp_path / name, tmp_path / f"copy of {name}")
    assert read_learned(tmp_path / "copy of run") == Learned(["c"])
    assert read_learned(tmp_path / "copy of none") is None


def test_damage_is_an_error_that_names_the_file(tmp_path):
    record_learned(tmp_path, [str(number) for number in range(100)], None)
    path = tmp_path / LEARNED_FILE
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"{LEARNED_FILE}.*the training episodes are then unknown"):
        read_learned(tmp_path)
