"""A damaged file of a checkpoint is one line that names it, says how it is damaged and what to do."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import check_file, check_folder, is_path, refuse_missing_folder, weight_files

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 3982638456\n"
WHOLE = save({"a.weight": np.ones((40, 8), np.float32), "b.weight": np.ones(3, np.float32)})
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    """Two files of weights with their index, a configuration and a tokenizer."""
    places = {}
    for number, name in enumerate(("a.weight", "b.weight"), 1):
        places[name] = f"model-0000{number}-of-00002.safetensors"
        save_file({name: np.ones((4, 8), np.float32)}, tmp_path / places[name])
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text('{"a": 1}')
    return tmp_path


def problem(folder) -> str:
    with pytest.raises(CheckpointError) as found:
        check_folder(folder)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_whole_folder_passes_and_files_that_nothing_loads_may_be_pointers(folder):
    (folder / "consolidated.safetensors").write_bytes(POINTER)
    check_folder(folder)
    assert [path.name for path in weight_files(folder)] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


NAMES = ("model-00002-of-00002.safetensors", INDEX, "config.json", "tokenizer.json", "preprocessor_config.json")


@pytest.mark.parametrize("name", [*NAMES, "adapter_model.safetensors", "tokenizer.model", "vocab.json"])
def test_a_pointer_of_git_lfs_is_recognised_in_every_kind_of_file(folder, name):
    (folder / name).write_bytes(POINTER)
    message = problem(folder)
    assert message.startswith(f"{folder / name} is a pointer of git-lfs, not the file of 3,982,638,456 bytes: run `git")
    assert f"`git lfs pull` in {folder}" in message


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_and_a_web_page_are_named(folder, name):
    (folder / name).write_bytes(b"")
    assert problem(folder) == f"{folder / name} is empty; download or copy it again"
    (folder / name).write_bytes(b"<!DOCTYPE html><html>404</html>")
    assert problem(folder).startswith(f"{folder / name} is a web page")


@pytest.mark.parametrize("length", [1, 7, 8, 20, 100, len(WHOLE) // 2, len(WHOLE) - 1])
def test_cut_weights_are_named_with_the_bytes_that_they_should_have(tmp_path, length):
    path = tmp_path / "model.safetensors"
    path.write_bytes(WHOLE[:length])
    with pytest.raises(CheckpointError, match=rf"model.safetensors is cut: it has {length:,} .*download or copy it"):
        check_file(path)
    if length > 300:
        with pytest.raises(CheckpointError, match=f"it has {length:,} of {len(WHOLE):,} bytes"):
            check_file(path)


@pytest.mark.parametrize("content", [b"\x80\x04PK not weights", b"\xff" * 64, WHOLE + b"more"])
def test_a_file_that_is_no_safetensors_is_named(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged, or no safetensors"):
        check_file(path)


@given(st.binary(max_size=200))
def test_no_content_is_a_traceback(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_bytes(content)
        try:
            check_file(folder / name)
        except CheckpointError as error:
            assert str(error).startswith(str(folder / name))


def test_a_missing_file_of_an_index_is_named_without_advice_about_other_formats(folder):
    (folder / NAMES[0]).unlink()
    assert problem(folder) == (
        f"{folder} is incomplete: {NAMES[0]}, which {INDEX} names, is missing; download it again"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"weight_map": {"a.weight": "model-000', "is damaged or cut: it is not JSON"),
        ("[]", "is damaged: it is not a JSON object"),
        ("{}", "its weight_map is no list of weights and files"),
        ('{"weight_map": []}', "its weight_map is no list of weights and files"),
        ('{"weight_map": {"a.weight": 3}}', "it names the file '3'"),
        ('{"weight_map": {"a.weight": null}}', "it names the file 'None'"),
        ('{"weight_map": {"a.weight": "../model.safetensors"}}', "it names the file '../model.safetensors'"),
    ],
)
def test_a_damaged_index_is_named(folder, content, expected):
    (folder / INDEX).write_text(content)
    assert str(folder / INDEX) in problem(folder)
    assert expected in problem(folder)


def test_an_index_that_names_weights_which_its_files_lack_is_refused(folder):
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"c.weight": NAMES[0]}}))
    assert f"{folder / NAMES[0]} lacks 1 weight(s) that {INDEX} names, c.weight first" in problem(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"])
@pytest.mark.parametrize("content", [b'{"a": ', b"\xff\xfe{}", b"3", b'"x"', b"[" * 100_000])
def test_a_description_that_is_no_json_object_is_named(folder, name, content):
    (folder / name).write_bytes(content)
    assert problem(folder).startswith(f"{folder / name} is damaged")


@pytest.mark.parametrize("location", ["/no/such", "./base", "../base", "~/base", "a/b/c", "base/"])
def test_a_path_is_no_name_on_the_hub(location):
    assert is_path(location)
    with pytest.raises(
        CheckpointError, match=f"model.vlm.checkpoint cannot be loaded: the folder {location} does not exist"
    ):
        refuse_missing_folder(location, "model.vlm.checkpoint")


@pytest.mark.parametrize("location", ["gpt2", "Qwen/Qwen2.5-VL-7B-Instruct"])
def test_a_name_on_the_hub_is_no_path(location):
    assert not is_path(location)
    refuse_missing_folder(location, "model.vlm.checkpoint")
