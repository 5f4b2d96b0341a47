"""Actions whose text a tokenizer changes are supervised only if both texts are equal in Unicode NFC."""

import pytest
from helpers import tiny
from helpers.models.tokenizers_of_all_kinds import normalising
from helpers.published.published_qwen_vl import write_vocabulary
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Action
from vlm_agent.models.qwen_vl_2023.tokenizer import build_tokenizer
from vlm_agent.sentences import IGNORED

NOT_NFC = ("cafe\u0301", "\u212b", "\u2126 ohm")
LOUD = Action.type_text("LOUD")
"""Not writable by `lower_case`."""


def lower_case() -> PreTrainedTokenizerFast:
    return normalising(normalizers.Replace("LOUD", "loud"))


def qwen_2023(folder) -> PreTrainedTokenizerFast:
    return build_tokenizer(write_vocabulary(folder / "qwen.tiktoken"), 8192)


def action_ids(sentences, action: Action) -> list[int]:
    return [*sentences.ids(sentences.language.encode(action)), sentences.end_mark]


@pytest.mark.parametrize("make", [lambda _: normalising(normalizers.NFC()), qwen_2023], ids=["nfc", "qwen_2023"])
@pytest.mark.parametrize("text", NOT_NFC)
def test_typed_text_that_is_not_nfc_is_supervised_in_nfc(make, text, tmp_path):
    sentences = tiny.sentences(make(tmp_path))
    sentence = sentences.build(tiny.episode(0, (Action.type_text(text), Action.complete())))
    composed = sentences.build(
        tiny.episode(0, (Action.type_text(sentences.text(sentences.ids(text))), Action.complete()))
    )
    assert (sentence.input_ids, sentence.labels) == (composed.input_ids, composed.labels)
    assert sentence.supervised == len(action_ids(sentences, Action.type_text(text))) + len(
        action_ids(sentences, Action.complete())
    )


def test_an_unwritable_action_is_in_the_history_without_a_loss():
    sentences = tiny.sentences(lower_case())
    sentence = sentences.build(tiny.episode(0, (LOUD, Action.complete())))
    loud = [*sentences.ids('Input text "loud"'), sentences.tokenizer.eos_token_id]
    assert [label for label in sentence.labels if label != IGNORED] == action_ids(sentences, Action.complete())
    start = next(at for at in range(len(sentence)) if sentence.input_ids[at : at + len(loud)] == loud)
    assert set(sentence.labels[start : start + len(loud)]) == {IGNORED}


def test_an_agent_answers_every_step_and_marks_unwritable_ones():
    words = lower_case()
    model = tiny.model(len(words))
    agent = VlmAgent(model, words, tiny.sentences(words))
    (answers,) = agent.answer_episodes([tiny.episode(0, (Action.tap(0.5, 0.5), LOUD, Action.complete()))])
    assert [answer.diagnostics.unwritable for answer in answers] == [False, True, False]
