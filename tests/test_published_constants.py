"""Constants that papers and official code publish: a value that drifts changes features or scores without an error."""

import pytest
import torch
from torch import nn
from transformers.image_utils import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    IMAGENET_STANDARD_MEAN,
    IMAGENET_STANDARD_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)

from vlm_agent.evaluation.scoring import aitw_matcher
from vlm_agent.evaluation.scoring.aitz import rules
from vlm_agent.geometry import TAP_DISTANCE
from vlm_agent.models.features import preprocessing, towers
from vlm_agent.models.weights.quantisation import quantise

CLIP = (tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD))


@pytest.mark.parametrize(
    ("ours", "published"),
    [
        ((preprocessing.CLIP_MEAN, preprocessing.CLIP_STD), CLIP),
        (
            (preprocessing.IMAGENET_MEAN, preprocessing.IMAGENET_STD),
            (tuple(IMAGENET_DEFAULT_MEAN), tuple(IMAGENET_DEFAULT_STD)),
        ),
    ],
    ids=["CLIP and BLIP-2", "DINOv2"],
)
def test_image_means_and_deviations_are_the_published_ones(ours, published):
    assert ours == published


@pytest.mark.parametrize(
    ("tower", "mean", "deviation"),
    [
        (towers.BLIP2, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD),
        (towers.CLIP, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD),
        (towers.VIT, IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD),
        (towers.DINOV2, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
    ],
    ids=["blip2", "clip", "vit", "dinov2"],
)
def test_each_vision_tower_normalises_as_its_published_processor(tower, mean, deviation):
    assert (tower.mean, tower.std) == (tuple(mean), tuple(deviation))


def test_thresholds_of_the_aitw_matcher_are_those_of_the_official_code():
    """google-research, android_in_the_wild/action_matching.py and action_type.py."""
    assert (aitw_matcher.MATCH_DISTANCE, aitw_matcher.BOX_GROWTH, TAP_DISTANCE) == (0.14, 1.4, 0.04)


def test_thresholds_of_the_aitz_rules_are_those_of_the_official_code():
    assert (rules.BOX_FACTOR, rules.MIN_IOU, rules.MIN_RATIO) == (1.2, 0.5, 0.8)


def test_int8_layers_keep_activations_above_6_in_16_bits():
    """LLM.int8(), section 3.2."""
    model = nn.Module()
    model.language_model = nn.Sequential(nn.Linear(64, 64))
    model.parts = {"language_model": "language_model"}
    quantise(model, "int8")
    assert model.language_model[0].state.threshold == 6.0
    assert model.language_model[0].weight.dtype is torch.int8
