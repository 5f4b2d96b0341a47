"""Without `data.notes`, sentences, rows and recipes are those of earlier versions, byte for byte.

The digests were computed before the parts existed. The episodes have the four texts, which nothing may read.
"""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from transformers import AutoTokenizer

from vlm_agent.action_languages import language_settings
from vlm_agent.episodes import Episode
from vlm_agent.models.build import load_sentences
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.models.run_layout import base_folder
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.steps import StepSentences

NAMED = language_settings({"name": "named", "name_swipe_targets": True}).build()
AUTO_UI = language_settings({"name": "auto_ui"}).build()


def with_texts(episode: Episode) -> Episode:
    texts = [
        {"screen": f"screen {n}", "think": f"think {n}", "action": f"action {n}", "result": f"result {n}"}
        for n in range(len(episode))
    ]
    steps = tuple(replace(step, notes=coat) for step, coat in zip(episode.steps, texts, strict=True))
    return replace(episode, steps=steps)


EPISODES = [with_texts(tiny.episode(number)) for number in range(2)]


def digest_of(sentences: list[Sentence]) -> str:
    digest = hashlib.sha256()
    for one in sentences:
        digest.update(json.dumps([one.input_ids, one.labels, one.kinds, one.roles, one.weights, one.about]).encode())
        for screen in one.screens:
            digest.update(np.ascontiguousarray(screen).tobytes())
    return digest.hexdigest()[:16]


def trajectories(sentences) -> list[Sentence]:
    built = [sentences.build(episode, with_swipe_targets=True) for episode in EPISODES]
    shortened = [sentences.segments(EPISODES[0], first, 4, 2, with_unwritable=True) for first in (0, 1)]
    prompt = sentences.prompt_segments(replace(EPISODES[0], steps=EPISODES[0].steps[:5]))
    asked = next(at for at, each in enumerate(prompt) if each.screen is EPISODES[0].steps[4])
    shortened[1] += prompt[asked - 1 :]  # the marks before the screen, the screen, and the cue
    return [*built, *map(sentences.encode, shortened)]


TRAJECTORIES = {
    "words": (lambda: tiny.sentences(tiny.tokenizer()), "571ef2450f2f89f5"),
    "chat": (
        lambda: replace(tiny.sentences(tiny.tokenizer()), template=replace(CHAT_TURNS, end="")),
        "4fe55c600014918f",
    ),
    "embedded base": (lambda: load_sentences(base_folder("phone_vlm_tiny"), NAMED), "2a9db1e5ebaaff45"),
}


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_trajectories_are_those_of_earlier_versions(name):
    sentences, expected = TRAJECTORIES[name]
    assert digest_of(trajectories(sentences())) == expected


def test_rows_of_trajectories_are_those_of_earlier_versions():
    row = collate(trajectories(tiny.sentences(tiny.tokenizer())))
    digest = hashlib.sha256()
    for name, column in sorted(row.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column).tobytes() if hasattr(column, "dtype") else repr(column).encode())
    assert digest.hexdigest()[:16] == "c16278f46e09ae37"


def steps_of(sentences: StepSentences) -> list[Sentence]:
    feature = np.zeros((1, 2), np.float16)
    return [
        sentences.build(episode, number, [feature] * len(sentences.screen_numbers(number)))
        for episode in EPISODES
        for number in range(len(episode))
    ]


STEPS = {
    "paper": ({}, "a1e8b38c93d35963"),
    "no chains": ({"history": 0, "future": 0}, "81136ddbe1af2ba5"),
    "elements, cut": (
        {"elements": True, "past_screens": 2, "max_source_tokens": 300, "max_target_tokens": 400},
        "acccf2824a4c623b",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_those_of_earlier_versions(name):
    keys, expected = STEPS[name]
    words = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    sentences = StepSentences(words, AUTO_UI, **{"max_source_tokens": 2000, "max_target_tokens": 400} | keys)
    assert digest_of(steps_of(sentences)) == expected
