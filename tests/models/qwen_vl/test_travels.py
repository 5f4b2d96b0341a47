"""What was trained here works elsewhere: an adapter in plain peft, a merged checkpoint in plain transformers."""

import json

import pytest
import torch
import transformers
from helpers import tiny
from helpers.models import tiny_qwen
from helpers.runs import served_qwen
from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoProcessor

from vlm_agent.agents import demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.models.build import load, load_sentences
from vlm_agent.models.family import processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.models.weights.merge import merge_run
from vlm_agent.sentences import IGNORED

STEPS = [(episode, number) for episode in served_qwen.EPISODES for number in (0, len(episode) - 1)]


@pytest.fixture(scope="module", params=tiny_qwen.FAMILIES)
def run(request, tmp_path_factory):
    """A run, and beside it `merged`."""
    folder = tmp_path_factory.mktemp(request.param)
    run = served_qwen.write_run(folder, request.param)
    merge_run(run, folder / "merged", lambda model, words: [row(model, load_sentences(run, tiny.LANGUAGE))])
    return run


def row(model, sentences) -> dict:
    collated = processor_of(model.config).collate([sentences.build(served_qwen.EPISODES[1])])
    return {name: value for name, value in collated.items() if name not in NOT_FOR_MODELS}


def test_an_adapter_in_plain_peft_on_plain_transformers_has_equal_logits(run):
    sentences = load_sentences(run, tiny.LANGUAGE)
    plain = AutoModelForImageTextToText.from_pretrained(run.parent / served_qwen.BASE)
    assert type(plain) is getattr(transformers, type(plain).__name__)
    adapted = PeftModel.from_pretrained(plain, run / MODEL_FOLDER).eval()
    episode = served_qwen.EPISODES[1]
    processor = AutoProcessor.from_pretrained(run.parent / "merged" / MODEL_FOLDER)
    server = served_qwen.Server.__new__(served_qwen.Server)
    server.processor = processor
    last = len(episode) - 1
    messages = trained_messages(sentences, episode.goal, demonstrated(episode, last), episode.steps[last].screen)
    ours = sentences.build(episode)
    labels = torch.tensor(ours.labels)
    model, _ = load(run)
    with torch.inference_mode():
        inputs = server.inputs(messages)
        read = inputs["input_ids"].shape[1]
        theirs = adapted(**inputs).logits[0]
        expected = model(**row(model, sentences)).logits
        bare = AutoModelForImageTextToText.from_pretrained(run.parent / served_qwen.BASE)(**inputs).logits[0]
    before_last = [at - 1 for at in range(read) if labels[at] != IGNORED]
    assert torch.allclose(theirs[before_last], expected[: len(before_last)], atol=1e-4)
    assert not torch.allclose(bare[before_last], expected[: len(before_last)], atol=1e-2)


def test_a_merged_checkpoint_in_plain_transformers_writes_our_agents_tokens(run):
    server = served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)
    assert type(server.model) is getattr(transformers, type(server.model).__name__)
    agent, sentences = VlmAgent.from_run(run), load_sentences(run, tiny.LANGUAGE)
    for episode, number in STEPS:
        history, screen = demonstrated(episode, number), episode.steps[number].screen
        ours = agent.act(episode.goal, history, screen)
        read, written = server.generate(
            trained_messages(sentences, episode.goal, history, screen), tiny.LANGUAGE.max_tokens
        )
        assert (len(read), len(written)) == ours.usage.tokens
        assert sentences.text(written) == ours.text


def test_a_strip_is_resized_once_on_the_server_too(run):
    server = served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)
    episode = tiny.episode(size=(4, 500))
    screens = load_sentences(run, tiny.LANGUAGE).screens
    assert screens.fitted(*screens.fitted(4, 500)) != screens.fitted(4, 500)
    ours = VlmAgent.from_run(run).act(episode.goal, (), episode.steps[0].screen)
    sentences = load_sentences(run, tiny.LANGUAGE)
    messages = trained_messages(sentences, episode.goal, (), episode.steps[0].screen)
    read, written = server.generate(messages, tiny.LANGUAGE.max_tokens)
    assert (len(read), len(written)) == ours.usage.tokens


def test_the_image_processor_has_the_limits_of_the_run(run):
    processor = AutoProcessor.from_pretrained(run.parent / "merged" / MODEL_FOLDER)
    assert (
        type(processor).__name__
        == transformers.models.auto.processing_auto.PROCESSOR_MAPPING_NAMES[
            load(run.parent / "merged")[0].config.model_type
        ]
    )
    size = processor.image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (6 * 64, 20 * 64)
    sentences = load_sentences(run, tiny.LANGUAGE)
    for episode in served_qwen.EPISODES:
        grid = processor.image_processor([episode.steps[0].screenshot], return_tensors="pt")["image_grid_thw"]
        assert int(grid.prod()) // 4 == sentences.screens.tokens(*episode.steps[0].size)


def test_decoding_is_greedy_and_ends_with_the_templates_end_mark(run):
    folder = run.parent / "merged" / MODEL_FOLDER
    generation = json.loads((folder / "generation_config.json").read_text())
    words = AutoProcessor.from_pretrained(folder).tokenizer
    assert generation["eos_token_id"][0] == words.convert_tokens_to_ids("<|im_end|>")
    assert generation["do_sample"] is False
    assert "repetition_penalty" not in generation
