"""`vlm-agent convert-checkpoint`: from a published folder to one that a model and a tokenizer load from."""

import json

import pytest
from helpers.published import published_qwen_vl as published
from transformers import AutoTokenizer

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.models.llama_vit.model import LlamaViT


@pytest.fixture
def source(tmp_path):
    return published.write(tmp_path / "published", published.random_weights())


def test_a_published_folder_becomes_one_that_loads(source, tmp_path, capsys):
    output = tmp_path / "ours"
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(output)]) == OK
    assert f"to {output}" in capsys.readouterr().out
    model, tokenizer = LlamaViT.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert model.config.projector == "resampler"
    assert model.config.text_config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) <= model.config.text_config.vocab_size


def test_another_checkpoint_is_refused_with_a_message(source, tmp_path, capsys):
    (source / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]}))
    output = tmp_path / "ours"
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(output)]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith("vlm-agent convert-checkpoint: ")
    assert "Traceback" not in error
    assert not output.exists()


def test_a_folder_that_exists_is_refused_by_its_name(source, tmp_path, capsys):
    assert main(["convert-checkpoint", "--input", str(source), "--output", str(tmp_path)]) == FAILED
    assert f"{tmp_path}: exists already" in capsys.readouterr().err
