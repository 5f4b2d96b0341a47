"""A damaged file of a sentence encoder is named with the remedy, and a module that is not computed is refused."""

import json

import numpy as np
import pytest
from helpers.models.tiny_encoder import write_encoder

from vlm_agent.agents.examples.encoder import EncoderError, SentenceEncoder
from vlm_agent.errors import UserError

MODULE = "sentence_transformers.models."
TEXTS = ["open settings 1", "buy milk"]


@pytest.fixture
def encoder(tmp_path):
    """An encoder in the layout of sentence-transformers."""
    folder = write_encoder(tmp_path / "encoder")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    write_modules(folder, ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    return folder


def write_modules(folder, *modules):
    listed = [{"idx": n, "name": str(n), "path": path, "type": MODULE + kind} for n, (path, kind) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))


FILES = (
    *("config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"),
    "1_Pooling/config.json",
)


@pytest.mark.parametrize("content", [b"", b"5", b"null", b"[5]", b'{"a": ', b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_with_the_remedy(encoder, name, content):
    (encoder / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        SentenceEncoder.load(str(encoder))
    message = str(error.value)
    assert f"{encoder / name} is damaged (" in message
    assert message.endswith("download the encoder again")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{}"),
        ("modules.json", "[]"),
        ("modules.json", '[{"type": "sentence_transformers.models.Transformer"}]'),
        ("sentence_bert_config.json", '{"max_seq_length": "16"}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"model": {"type": "Unknown"}, "added_tokens": []}'),
        ("1_Pooling/config.json", "{}"),
        ("1_Pooling/config.json", '{"pooling_mode_mean_tokens": "yes"}'),
        ("model.safetensors", "{}"),
    ],
)
def test_content_of_another_shape_is_named_with_the_remedy(encoder, name, content):
    test_a_damaged_file_is_named_with_the_remedy(encoder, name, content.encode())


def test_weights_of_other_shapes_than_in_the_configuration_are_refused(encoder):
    content = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps(content | {"hidden_size": 32}))
    with pytest.raises(EncoderError, match=r"cannot be loaded: .*; download the encoder again"):
        SentenceEncoder.load(str(encoder))


def test_a_module_that_is_not_computed_is_refused_also_without_the_list_of_modules(encoder):
    write_modules(encoder, ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))
    with pytest.raises(EncoderError, match=r"has the module Dense \(2_Dense\).*choose another encoder"):
        SentenceEncoder.load(str(encoder))
    (encoder / "modules.json").unlink()
    SentenceEncoder.load(str(encoder))
    (encoder / "2_Dense").mkdir()
    with pytest.raises(EncoderError, match=r"has the module Dense \(2_Dense\)"):
        SentenceEncoder.load(str(encoder))


def test_the_pooling_is_that_of_the_folder_in_the_list_of_modules(encoder):
    expected = SentenceEncoder.load(str(encoder)).encode(TEXTS)
    (encoder / "1_Pooling").rename(encoder / "pooling")
    write_modules(encoder, ("", "Transformer"), ("pooling", "Pooling"))
    np.testing.assert_array_equal(SentenceEncoder.load(str(encoder)).encode(TEXTS), expected)
    (encoder / "pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(EncoderError, match="pools by cls_token"):
        SentenceEncoder.load(str(encoder))
    (encoder / "pooling/config.json").unlink()
    with pytest.raises(UserError, match=r"pooling/config\.json is missing"):
        SentenceEncoder.load(str(encoder))
