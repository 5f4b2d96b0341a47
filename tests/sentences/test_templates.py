"""A trajectory in chat turns has the same token ids as the model's own chat template for that conversation."""

import itertools
import re
from dataclasses import replace

import pytest
from helpers import tiny
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vlm_agent.episodes import Action, Episode
from vlm_agent.errors import UserError
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.models.qwen_vl_2023 import QWEN_2023
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.image_sizes import FittedScreens
from vlm_agent.sentences.templates import PLAIN
from vlm_agent.sentences.trajectory import TrajectorySentences

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""The pre-tokenization pattern of Qwen's tokenizers."""


def qwen_like_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges and the special tokens of ChatML."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [
        "system user assistant\n\n",
        "You operate a phone by its screen, one action at a time.",
        "Goal: open\n tap at",
    ]
    tokenizer.train_from_iterator(texts * 3, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    marks = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)


WORDS = qwen_like_tokenizer()
SENTENCES = TrajectorySentences(WORDS, tiny.LANGUAGE, FittedScreens(4 * 64, 24 * 64, 8), CHAT_TURNS)
SCREEN = "<|vision_start|><|image_pad|><|vision_end|>"


def template(turns: list[tuple[str, str]]) -> str:
    """The ChatML template, which all Qwen-VL models here use."""
    return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)


def conversation(episode: Episode) -> str:
    turns = [("system", "You operate a phone by its screen, one action at a time.")]
    for number, step in enumerate(episode.steps):
        turns.append(("user", SCREEN if number else f"Goal: {episode.goal}\n{SCREEN}"))
        turns.append(("assistant", tiny.LANGUAGE.encode(step.action)))
    return template(turns).removesuffix("\n")  # an agent stops at the end mark


def with_pads(sentence: Sentence) -> list[int]:
    """The ids with one <|image_pad|> per screen, as the template writes them before the processor repeats it."""
    pad = WORDS.convert_tokens_to_ids("<|image_pad|>")
    runs = itertools.groupby(sentence.input_ids, key=lambda id_: id_ == SCREEN_TOKEN)
    return [id_ for is_screen, run in runs for id_ in ([pad] if is_screen else run)]


PLAIN_TEXTS = st.text(max_size=30).filter(lambda text: not re.search(r"<\|\w+\|>", text))


@given(PLAIN_TEXTS, PLAIN_TEXTS.filter(lambda text: '"' not in text))
def test_the_ids_equal_those_of_the_chat_template(goal, typed):
    steps = tiny.episode().steps
    steps = (replace(steps[0], action=Action.type_text(typed)), *steps[1:])
    episode = replace(tiny.episode(), goal=goal, steps=steps)
    assert with_pads(SENTENCES.build(episode)) == WORDS(conversation(episode), add_special_tokens=False).input_ids


def test_each_action_and_the_end_mark_of_its_turn_are_supervised():
    sentence = SENTENCES.build(tiny.episode())
    text = WORDS.decode([label for label in sentence.labels if label != IGNORED])
    assert text == "".join(tiny.LANGUAGE.encode(action) + "<|im_end|>" for action in tiny.ACTIONS)


@pytest.mark.parametrize("mark", MARKS)
def test_a_special_token_in_typed_text_is_plain_text(mark):
    steps = tuple(replace(step, action=Action.type_text(f"a{mark}b")) for step in tiny.episode().steps[:2])
    typed = SENTENCES.build(replace(tiny.episode(), goal=f"say {mark}", steps=steps))
    steps = tuple(replace(step, action=Action.type_text("ab")) for step in steps)
    ordinary = SENTENCES.build(replace(tiny.episode(), goal="say", steps=steps))
    id_ = WORDS.convert_tokens_to_ids(mark)
    assert typed.input_ids.count(id_) == ordinary.input_ids.count(id_)
    assert f"a{mark}b" in WORDS.decode([label for label in typed.labels if label != IGNORED])


def test_the_prompt_of_an_agent_ends_with_the_start_of_the_assistants_turn():
    episode = tiny.episode()
    sentence = SENTENCES.prompt(replace(episode, steps=episode.steps[:3]))
    before = conversation(replace(episode, steps=episode.steps[:2])) + "\n" + template([("user", SCREEN)])
    assert with_pads(sentence) == WORDS(before + "<|im_start|>assistant\n", add_special_tokens=False).input_ids


def test_visual_tokens_are_between_the_vision_marks():
    sentence = SENTENCES.build(tiny.episode(size=(30, 20)))
    ids, count = sentence.input_ids, SENTENCES.screens.tokens(30, 20)
    start, end = (WORDS.convert_tokens_to_ids(mark) for mark in ("<|vision_start|>", "<|vision_end|>"))
    starts = [at for at, id_ in enumerate(ids) if id_ == start]
    assert len(starts) == len(tiny.ACTIONS)
    assert all(ids[at + 1 : at + 2 + count] == [SCREEN_TOKEN] * count + [end] for at in starts)


def test_the_plain_template_has_no_turns():
    assert (PLAIN.start, PLAIN.before_screen, PLAIN.next_turn) == ("", "", "")
    assert QWEN_2023.before_screen + QWEN_2023.cue == "<img></img>\nAction: "


def test_turns_of_a_base_model_end_with_the_end_mark_of_the_template_not_of_the_tokenizer():
    """The base model Qwen2-VL has the end mark <|endoftext|>."""
    base = qwen_like_tokenizer()
    base.eos_token = MARKS[0]
    sentences = replace(SENTENCES, tokenizer=base)
    assert sentences.build(tiny.episode()).input_ids == SENTENCES.build(tiny.episode()).input_ids
    assert sentences.end_mark == base.convert_tokens_to_ids("<|im_end|>") != base.eos_token_id
    plain = replace(sentences, template=PLAIN)
    assert tiny.action_ids(plain, Action.complete())[-1] == plain.end_mark == base.eos_token_id


def test_a_tokenizer_without_the_end_mark_of_the_template_is_an_error():
    with pytest.raises(UserError, match=r"<\|im_end\|> ends the turns .* not a token of its tokenizer"):
        replace(SENTENCES, tokenizer=tiny.tokenizer()).build(tiny.episode())
