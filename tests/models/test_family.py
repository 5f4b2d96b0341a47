"""How a model reads follows from its configuration alone."""

import pickle

import pytest
import torch
from helpers import tiny
from helpers.models import families, tiny_qwen
from transformers import AutoConfig

from vlm_agent.errors import UserError
from vlm_agent.models.family import processor_of
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.models.qwen_vl.family import MAX_PIXELS, MIN_PIXELS
from vlm_agent.models.qwen_vl.model import CHAT_TURNS, QwenVLCollator
from vlm_agent.models.qwen_vl_2023 import QWEN_2023
from vlm_agent.sentences.image_sizes import FittedScreens, FixedScreens
from vlm_agent.sentences.templates import PLAIN

SENTENCES = tiny.sentences(tiny.tokenizer())


@pytest.mark.parametrize(("family", "multiple"), [("qwen2_vl", 28), ("qwen2_5_vl", 28), ("qwen3_vl", 32)])
def test_a_published_configuration_sees_squares_of_its_size_within_its_authors_limits(family, multiple):
    processor = processor_of(AutoConfig.for_model(family))
    assert processor.screens == FittedScreens(MIN_PIXELS, MAX_PIXELS, multiple)
    assert processor.template == CHAT_TURNS
    assert isinstance(processor.collate, QwenVLCollator)


@pytest.mark.parametrize("family", tiny_qwen.FAMILIES)
def test_pixel_limits_come_from_the_configuration(family):
    config = AutoConfig.for_model(family, min_pixels=1000, max_pixels=2000)
    screens = processor_of(config).screens
    assert (screens.min_pixels, screens.max_pixels) == (1000, 2000)


def test_a_llama_vit_sees_one_size_and_knows_no_turns():
    processor = processor_of(tiny.model(9).config)
    assert processor.screens == FixedScreens(tiny.SCREEN, tiny.GRID[0] * tiny.GRID[1])
    assert (processor.template, processor.collate) == (PLAIN, collate)


def test_a_resampler_is_qwen_vl_of_2023():
    config = tiny.model(9).config
    config.projector = "resampler"
    assert processor_of(config).template == QWEN_2023


def test_another_family_is_refused_by_name():
    with pytest.raises(
        UserError, match=r"'gpt2' are not supported; supported are auto_ui, llama_vit, qwen2_vl, qwen2_5_vl, qwen3_vl"
    ):
        processor_of(AutoConfig.for_model("gpt2"))


@pytest.mark.parametrize("name", families.NAMES)
def test_a_reading_can_be_sent_to_worker_processes(name):
    processor = families.shared(name).processor
    again = pickle.loads(pickle.dumps(processor))  # noqa: S301
    sentence = families.shared(name).sentences.build(tiny.episode())
    one, other = processor.collate([sentence]), again.collate([sentence])
    tensors = {key for key, value in one.items() if isinstance(value, torch.Tensor)}
    assert all(torch.equal(one[key], other[key]) for key in tensors)
    assert all(repr(one[key]) == repr(other[key]) for key in one.keys() - tensors)


@pytest.mark.parametrize("name", families.NAMES)
def test_the_frame_takes_no_token_that_the_tokenizer_does_not_know(name):
    family = families.shared(name)
    unknown = family.words.unk_token_id
    assert unknown is None or unknown not in family.sentences.build(tiny.episode()).input_ids


def test_a_row_holds_the_screens_of_its_sentences_in_order():
    sentences = [SENTENCES.build(tiny.episode(number), last=last) for number, last in enumerate((2, 1))]
    row = collate(sentences)
    assert row["screens"].shape == (3, 3, *tiny.SCREEN)
    assert row["screens"].dtype == torch.uint8
    expected = [screen for sentence in sentences for screen in sentence.screens]
    assert all((seen.numpy() == screen).all() for seen, screen in zip(row["screens"], expected, strict=True))
    assert "element_labels" not in row
