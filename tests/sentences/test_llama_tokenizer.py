"""transformers' LlamaTokenizer, loaded from a SentencePiece tokenizer.model as in Llama 2, round-trips every action."""

import io
import json

import pytest
import sentencepiece
from helpers import tiny
from transformers import AutoTokenizer, LlamaTokenizer

from vlm_agent.episodes import Action

TEXTS = (
    "tap at 7 90 swipe from 3 44 to 40 48",
    "Input text weather tomorrow in the town",
    "press back press home press enter complete impossible",
    "open the settings and turn off automatic brightness",
)
ACTIONS = (
    Action.tap(0.07, 0.9),
    Action.swipe((0.8, 0.5), (0.3, 0.5)),
    Action.press("back"),
    Action.complete(),
    *map(
        Action.type_text,
        ("weather", "Grüße, 東京 👋🏽", "two  spaces", " leading and trailing ", 'a "quote"\\', "</s>"),
    ),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A model of 420 pieces with the options and the configuration of Llama 2's."""
    folder, model = tmp_path_factory.mktemp("llama"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 30),
        model_writer=model,
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | marks))
    return AutoTokenizer.from_pretrained(folder)


def test_the_tokenizer_class_is_llama_tokenizer(tokenizer):
    assert isinstance(tokenizer, LlamaTokenizer)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_an_action_is_decoded_from_its_tokens(tokenizer, action):
    sentences = tiny.sentences(tokenizer)
    ids = tiny.action_ids(sentences, action)
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in ids[:-1]
    assert sentences.text(ids) == sentences.language.encode(action)
    assert sentences.language.decode(sentences.text(ids)) == sentences.language.decode(
        sentences.language.encode(action)
    )


def test_a_sentence_begins_with_exactly_one_start_mark(tokenizer):
    sentence = tiny.sentences(tokenizer).build(tiny.episode(0, ACTIONS[:4]))
    assert [n for n, token in enumerate(sentence.input_ids) if token == tokenizer.bos_token_id] == [0]
    assert list(sentence.input_ids).count(tokenizer.eos_token_id) == 4
