"""Published Auto-UI weights become a folder for `model.encoder_decoder.checkpoint`; a wrong folder is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers import tiny
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.convert import model_of, read_published
from vlm_agent.models.auto_ui.family import AUTO_UI
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.conversion import CheckpointFormatError, converter_of
from vlm_agent.recipe.model import ModelRecipe

GOLDEN = Path(__file__).parents[2] / "data/auto_ui"
both_heads = pytest.mark.parametrize("name", ["model_flan", "model_t5"])


def published(name: str, folder: Path, **changed: torch.Tensor | None) -> Path:
    """A folder as the published code saves it, with some weights changed or, where None, left out."""
    with safe_open(GOLDEN / f"{name}.safetensors", framework="pt") as file:
        content = json.loads(file.metadata()["config"])
        weights = {
            key.removeprefix("weights."): file.get_tensor(key)
            for key in file.keys()  # noqa: SIM118 (no mapping)
            if key.startswith("weights.")
        }
    weights |= changed
    folder.mkdir()
    save_file(
        {key: value.contiguous() for key, value in weights.items() if value is not None}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(content | {"architectures": ["T5ForMultimodalGeneration"]}))
    return folder


def convert(source: Path, target: Path) -> None:
    converter_of(source).convert(source, target, lambda line: None)


@both_heads
def test_a_published_folder_becomes_one_that_loads(name, tmp_path, capsys):
    source, target = published(name, tmp_path / "published"), tmp_path / "ours"
    tiny.tokenizer().save_pretrained(source)
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(target)]) == OK
    printed = capsys.readouterr().out
    assert "Wrote model.safetensors" in printed and "Copied tokenizer.json" in printed
    assert "use it in a recipe as model.encoder_decoder.checkpoint, with model.features" in printed
    content = json.loads((source / "config.json").read_text())
    expected = model_of(*read_published(content, load_file(source / "model.safetensors"), source)).state_dict()
    loaded = AUTO_UI.load(target)
    assert loaded.config.tie_word_embeddings == (name == "model_t5")
    assert loaded.config.features == {"size": 24}
    assert all(torch.equal(value, expected[key]) for key, value in loaded.state_dict().items())


def test_a_published_folder_is_not_read_as_a_damaged_t5(tmp_path):
    source = published("model_flan", tmp_path / "published")
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "t5"}))
    recipe = ModelRecipe(encoder_decoder={"checkpoint": str(source)}, features={"extractor": "phone_vlm_tiny"})
    with pytest.raises(CheckpointError, match=r"is a published Auto-UI; .* vlm-agent convert-checkpoint$"):
        configuration_of(recipe, tiny.tokenizer())


def test_without_a_tokenizer_the_conversion_names_where_to_copy_one_from(tmp_path):
    lines = []
    source = published("model_flan", tmp_path / "published")
    converter_of(source).convert(source, tmp_path / "ours", lines.append)
    assert "holds no tokenizer; copy that of the T5" in lines[-1]


def test_the_content_decides_even_without_the_published_class_in_the_configuration(tmp_path):
    source = published("model_flan", tmp_path / "published")
    (source / "config.json").write_text(json.dumps({"model_type": "t5", "d_model": 32}))
    assert converter_of(source).name == "Auto-UI"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gate_dense.weight": None}, "fusion.gate_dense.weight is missing"),
        ({"image_dense.weight": None}, "image_dense.weight is missing"),
        ({"shared.weight": torch.zeros(96, 32)}, "encoder.embed_tokens.weight differs from shared.weight"),
        ({"mha_layer.in_proj_weight": torch.zeros(2, 32)}, r"in_proj_weight has shape \(2, 32\), whose rows cannot"),
        ({"extra.weight": torch.zeros(2)}, "t5.extra.weight is unknown"),
        ({"gate_dense.bias": torch.zeros(31)}, r"fusion.gate_dense.bias has shape \(31,\), where .* \(32,\)"),
        (
            {"gate_dense.bias": torch.zeros(32, dtype=torch.float16)},
            "are F16, F32; .* In float16, T5's activations overflow",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_weights_are_named_and_nothing_is_written(changed, message, tmp_path):
    source = published("model_flan", tmp_path / "published", **changed)
    with pytest.raises(CheckpointFormatError, match=message):
        convert(source, tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_weights_of_an_older_file_beside_the_newer_are_refused(tmp_path):
    source = published("model_flan", tmp_path / "published")
    (source / "model_old.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointFormatError, match=r"is in .*model_old.safetensors and in another file; remove"):
        convert(source, tmp_path / "ours")


def test_a_configuration_that_is_nested_without_end_is_one_line(tmp_path, capsys):
    source = published("model_flan", tmp_path / "published")
    (source / "config.json").write_text("[" * 200_000)
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == FAILED
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("key", "value"), [("d_model", "x"), ("num_heads", 0), ("feed_forward_proj", "what")])
def test_a_value_that_no_t5_can_have_is_named(key, value, tmp_path):
    source = published("model_flan", tmp_path / "published")
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointFormatError, match=f"published: config.json: .*{key}"):
        convert(source, tmp_path / "ours")


def test_a_folder_without_a_tokenizer_is_refused_in_one_line(tmp_path):
    source, target = published("model_flan", tmp_path / "published"), tmp_path / "ours"
    convert(source, target)
    recipe = ModelRecipe(encoder_decoder={"checkpoint": str(target)}, features={"extractor": "phone_vlm_tiny"})
    vocabulary = Vocabulary(tiny.LANGUAGE.vocabulary(), ())
    with pytest.raises(
        CheckpointError, match=r"^model.encoder_decoder.checkpoint .*ours' holds no tokenizer; copy .*$"
    ):
        build_tokenizer(recipe, vocabulary)
    (target / "tokenizer.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r"^model.encoder_decoder.checkpoint .*tokenizer.json is damaged or cut: .*$"
    ):
        build_tokenizer(recipe, vocabulary)


def test_a_tied_head_that_differs_is_named(tmp_path):
    source = published("model_t5", tmp_path / "published", **{"lm_head.weight": torch.zeros(96, 32)})
    with pytest.raises(CheckpointFormatError, match=r"lm_head.weight differs from shared.weight, and config.json"):
        convert(source, tmp_path / "ours")


def test_damaged_and_pickled_files_are_refused_with_what_to_do(tmp_path, capsys):
    source = published("model_flan", tmp_path / "published")
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == FAILED
    assert "is cut: it has 311,081 of 311,088 bytes" in capsys.readouterr().err
    weights.unlink()
    (source / "pytorch_model.bin").write_bytes(b"")
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == FAILED
    assert "pytorch_model.bin cannot be read as tensors alone" in capsys.readouterr().err
    (source / "config.json").write_text("{")
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == FAILED
    assert "config.json is damaged or cut: it is not JSON" in capsys.readouterr().err
    shutil.rmtree(source)
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path / "ours")]) == FAILED
    assert "config.json" in capsys.readouterr().err
