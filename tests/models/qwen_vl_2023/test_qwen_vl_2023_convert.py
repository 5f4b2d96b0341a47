"""Converting Qwen-VL (2023): all or nothing, and a wrong checkpoint is named."""

import json
import re

import pytest
import torch
from helpers.published import published_qwen_vl as published
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vlm_agent.errors import CheckpointError
from vlm_agent.models.conversion import CheckpointFormatError
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.qwen_vl_2023 import convert as convert_module
from vlm_agent.models.qwen_vl_2023.convert import QWEN_VL_2023

NAME = "transformer.visual.attn_pool.kv_proj.weight"


@pytest.fixture
def source(tmp_path):
    return published.write(tmp_path / "published", published.random_weights())


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "ours"


def convert(source, target):
    lines = []
    QWEN_VL_2023.convert(source, target, lines.append)
    return [line.removeprefix("Wrote ") for line in lines]


def change(source, change_of_file) -> None:
    """Rewrites the file that holds NAME."""
    for file in source.glob("*.safetensors"):
        tensors = load_file(file)
        if NAME in tensors:
            change_of_file(tensors)
            save_file(tensors, file)


def test_files_stay_within_the_size_limit_and_contain_the_same_weights(source, target, monkeypatch):
    bytes_ = 1_200_000
    monkeypatch.setattr(convert_module, "SHARD_BYTES", bytes_)
    files = convert(source, target)
    assert len(files) > 3
    index = json.loads((target / "model.safetensors.index.json").read_text())
    sizes = {}
    for file in files:
        tensors = load_file(target / file)
        sizes[file] = sum(tensor.nbytes for tensor in tensors.values())
        assert set(tensors) == {name for name, place in index["weight_map"].items() if place == file}
    assert max(sizes.values()) <= bytes_
    assert sum(sizes.values()) == index["metadata"]["total_size"]
    monkeypatch.undo()
    convert(source, target.with_name("one_file"))
    one, many = (LlamaViT.from_pretrained(folder).state_dict() for folder in (target.with_name("one_file"), target))
    assert all(torch.equal(one[name], tensor) for name, tensor in many.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_keep_their_dtype(dtype, tmp_path, target):
    halves = {name: tensor.to(dtype) for name, tensor in published.random_weights().items()}
    convert(published.write(tmp_path / "halves", halves), target)
    assert LlamaViT.from_pretrained(target).dtype == dtype
    with safe_open(next(target.glob("*.safetensors")), framework="pt") as content:
        assert {content.get_tensor(name).dtype for name in content.keys()} == {dtype}  # noqa: SIM118


def _remove(tensors):
    del tensors[NAME]


def _add(tensors):
    tensors["transformer.h.2.attn.rotary_emb.inv_freq"] = torch.zeros(4)


def _reshape(tensors):
    tensors[NAME] = tensors[NAME].T.contiguous()


def _quantise(tensors):
    tensors[NAME] = tensors[NAME].to(torch.int32)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_remove, f"{NAME} is missing"),
        (_add, "inv_freq is unknown"),
        (_reshape, rf"{NAME} has shape \(32, 256\), where config.json asks for \(256, 32\)"),
        (_quantise, f"{NAME} is I32"),
    ],
)
def test_weights_that_are_not_the_published_ones_are_named(fault, message, source, target):
    change(source, fault)
    with pytest.raises(CheckpointFormatError, match=message):
        convert(source, target)
    assert not target.parent.exists()


def test_a_weight_that_is_in_two_files_is_refused(source, target):
    save_file({NAME: torch.zeros(256, 32)}, source / "other.safetensors")
    with pytest.raises(CheckpointFormatError, match=r"is both in model-0000\d-of-00003.safetensors and in other"):
        convert(source, target)


def test_of_many_wrong_weights_a_few_are_named_and_the_rest_counted(source, target):
    next(source.glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointFormatError, match=r"(?s)is missing.*… and \d+ more"):
        convert(source, target)


def test_half_a_file_is_named(source, target):
    file = source / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003.safetensors is cut: it has"):
        convert(source, target)


class Runs:
    """A pickle that writes a file when it is read without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("fault", ["safetensors", "code", "cut", "list", "text"])
def test_a_bin_file_that_is_not_tensors_alone_is_refused_and_runs_nothing(fault, source, target, tmp_path):
    written = tmp_path / "written"
    for file in source.glob("*.safetensors"):
        file.rename(file.with_name(f"pytorch_{file.stem}.bin"))
    first = min(source.glob("*.bin"))
    contents = {"code": {NAME: Runs(written)}, "list": [torch.zeros(1)], "text": {NAME: "weights"}}
    if fault in contents:
        torch.save(contents[fault], first)
    elif fault == "cut":
        torch.save({NAME: torch.zeros(999)}, first)
        first.write_bytes(first.read_bytes()[:-900])
    with pytest.raises(CheckpointFormatError, match=re.escape(str(first))):
        convert(source, target)
    assert not written.exists() and not target.exists()


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bin_files_give_the_same_checkpoint_as_safetensors(dtype, files, tmp_path):
    weights = {name: tensor.to(dtype) for name, tensor in published.random_weights().items()}
    source = published.write(tmp_path / "published", weights)
    convert(source, tmp_path / "of_safetensors")
    for file in source.glob("*.safetensors"):
        file.unlink()
    for number in range(files):
        name = "pytorch_model.bin" if files == 1 else f"pytorch_model-{number + 1:05}-of-{files:05}.bin"
        torch.save(dict(list(weights.items())[number::files]), source / name)
    convert(source, tmp_path / "of_bin")
    for file in (tmp_path / "of_safetensors").iterdir():
        assert file.read_bytes() == (tmp_path / "of_bin" / file.name).read_bytes(), file.name


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"visual": None}, "visual"),
        ({"architectures": ["LlamaForCausalLM"]}, "architectures"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"no_bias": False}, "no_bias"),
        ({"kv_channels": 32}, "kv_channels"),
        ({"rotary_pct": 0.25}, "rotary_pct"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"hidden_size": "256"}, "hidden_size"),
        ({"visual": published.TINY["visual"] | {"output_dim": 128}}, "output_dim"),
    ],
)
def test_another_configuration_is_refused_by_its_key(keys, message, source, target):
    (source / "config.json").write_text(json.dumps(published.TINY | keys))
    with pytest.raises(CheckpointFormatError, match=rf"(?s)config.json is not Qwen-VL's.*{message}"):
        convert(source, target)


def test_a_vocabulary_larger_than_the_embeddings_is_refused(source, target):
    published.write_vocabulary(source / "qwen.tiktoken", tuple(b"%03d" % number for number in range(60)))
    with pytest.raises(CheckpointFormatError, match=r"more than config.json's 512 embeddings"):
        convert(source, target)


@pytest.mark.parametrize("missing", ["config.json", "qwen.tiktoken"])
def test_a_missing_file_is_named(missing, source, target):
    (source / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        convert(source, target)


def test_a_folder_that_exists_is_left_alone(source, target):
    target.mkdir(parents=True)
    with pytest.raises(FileExistsError):
        convert(source, target)
    assert not list(target.iterdir())


def test_an_interrupted_conversion_leaves_no_file_and_a_killed_one_does_not_block_the_next(source, target):
    def stop(file):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        QWEN_VL_2023.convert(source, target, stop)
    assert not list(target.parent.iterdir())
    partial = target.with_name(f".{target.name}.partial")
    partial.mkdir()
    (partial / "model-00001-of-00009.safetensors").write_bytes(b"half")
    convert(source, target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert not (target / "model-00001-of-00009.safetensors").exists()
