"""Our Qwen-VLs are transformers' own: the same pixels, positions, losses, gradients, adapters and words."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from helpers import tiny
from helpers.models import families, tiny_qwen
from peft import PeftModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from vlm_agent.episodes import Episode
from vlm_agent.errors import CheckpointError
from vlm_agent.models.family import FAMILIES, family, family_of_recipe
from vlm_agent.models.qwen_vl.family import MAX_PIXELS, QWEN2_5_VL
from vlm_agent.models.weights.adapters import save_trained_weights
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.sentences import SCREEN_TOKEN, Sentence

SIZES = [(8, 8), (20, 12), (64, 32), (40, 48), (300, 140), (1280, 720), (24, 64)]
"""Smaller and larger than the limits of the tiny models, which are 256 and 1,536 pixels, and within them."""

every_family = pytest.mark.parametrize("name", tiny_qwen.FAMILIES)


def theirs(model) -> transformers.PreTrainedModel:
    """transformers' own class with the weights of ours."""
    own = getattr(transformers, type(model).__name__)
    assert own is not type(model)
    made = own(model.config)
    made.load_state_dict(model.state_dict())
    return made.eval()


def processor(model) -> Qwen2VLImageProcessorPil:
    """transformers' own, that needs no torchvision, as a checkpoint of the model's shape configures it."""
    vision = model.config.vision_config
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": model.config.min_pixels, "longest_edge": model.config.max_pixels},
        patch_size=vision.patch_size,
        merge_size=vision.spatial_merge_size,
        temporal_patch_size=vision.temporal_patch_size,
        image_mean=list(model.image_mean),
        image_std=list(model.image_std),
    )


def their_batch(model, screenshots: list[np.ndarray], sentence: Sentence) -> dict:
    """What transformers' processor makes of screenshots, and the sentence's ids as its models take them."""
    ids = torch.tensor([sentence.input_ids])
    images = processor(model)(screenshots, return_tensors="pt")
    return {
        "input_ids": ids.masked_fill(ids == SCREEN_TOKEN, model.config.image_token_id),
        "mm_token_type_ids": (ids == SCREEN_TOKEN).int(),
        "pixel_values": images["pixel_values"],
        "image_grid_thw": images["image_grid_thw"],
    }


def long_and_mixed(family: families.Family) -> tuple[list[np.ndarray], Sentence]:
    """The screenshots of an episode whose screens have five shapes, and its sentence."""
    steps = [tiny.episode(number, size=size).steps[number] for number, size in enumerate(SIZES[:5])]
    episode = Episode("9", "general", "open settings 9", tuple(steps))
    return [step.screenshot for step in steps], family.sentences.build(episode)


def test_every_family_is_chosen_by_what_transformers_calls_it():
    assert {*tiny_qwen.FAMILIES} < {*FAMILIES}
    for model_type in tiny_qwen.FAMILIES:
        own = family(model_type).model
        assert own.config_class.model_type == model_type
        assert issubclass(own, getattr(transformers, own.__name__))


@every_family
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pixels_are_those_of_transformers_image_processor(name, size):
    family = families.shared(name)
    screenshot = tiny.episode(size=size).steps[0].screenshot
    sentence = Sentence()
    screen = family.processor.screens.prepare(screenshot)
    sentence.see(screen, family.processor.screens.tokens(*size))
    row = family.row(sentence)
    expected = processor(family.model)([screenshot], return_tensors="pt")
    assert torch.equal(row["grids"], expected["image_grid_thw"])
    assert torch.allclose(family.model._pixels(row["patches"]), expected["pixel_values"], atol=1e-5)


@every_family
def test_means_and_limits_are_those_that_checkpoints_of_this_family_bring(name):
    model = families.shared(name).model
    if name == "qwen3_vl":
        assert model.image_mean == model.image_std == (0.5, 0.5, 0.5)
    else:
        assert model.image_mean == tuple(Qwen2VLImageProcessorPil().image_mean)
        assert model.image_std == tuple(Qwen2VLImageProcessorPil().image_std)


@every_family
def test_positions_are_those_of_get_rope_index_in_every_sentence_of_a_row(name):
    family = families.shared(name)
    screenshots, long = long_and_mixed(family)
    short = family.sentences.build(tiny.episode(1, tiny.ACTIONS[:1], size=(20, 60)))
    row = family.row(long, short)
    begin = 0
    for shots, sentence in ((screenshots, long), ([tiny.episode(1, size=(20, 60)).steps[0].screenshot], short)):
        batch = their_batch(family.model, shots, sentence)
        expected, _ = family.model.model.get_rope_index(
            batch["input_ids"], batch["mm_token_type_ids"], image_grid_thw=batch["image_grid_thw"]
        )
        positions = row["position_ids"][:, :, begin : begin + len(sentence)]
        assert torch.equal(positions[1:], expected)
        assert positions[0, 0].tolist() == list(range(len(sentence)))
        begin += len(sentence)


@every_family
def test_a_sentence_whose_screens_do_not_fit_its_places_is_refused(name):
    family = families.shared(name)
    sentence = family.sentences.build(tiny.episode())
    sentence.screens.pop()
    with pytest.raises(ValueError, match="5 places for screens, and 4 screens"):
        family.row(sentence)


@every_family
def test_loss_and_gradients_at_labels_alone_are_those_of_transformers_with_all_logits(name):
    family = families.family(name)
    screenshots, sentence = long_and_mixed(family)
    reference = theirs(family.model)
    output = family.model(**family.row(sentence))
    batch = their_batch(family.model, screenshots, sentence)
    expected = reference(**batch, labels=torch.tensor([sentence.labels]))
    assert output.loss.item() == pytest.approx(expected.loss.item(), abs=1e-5)
    assert output.logits.shape == (sentence.supervised, family.model.config.text_config.vocab_size)
    assert expected.logits.shape[1] == len(sentence)
    few, all_ = families.gradients(family.model, output.loss), families.gradients(reference, expected.loss)
    assert few.keys() == all_.keys()
    for weight in few:
        assert torch.allclose(few[weight], all_[weight], atol=1e-5, rtol=1e-3), weight


@every_family
def test_an_adapter_trained_here_fits_transformers_own_class(name, tmp_path):
    family = families.adapted(name)
    base = families.family(name).model
    screenshots, sentence = long_and_mixed(family)
    save_trained_weights(family.model, tmp_path)
    with torch.inference_mode():
        ours = family.model(**family.row(sentence)).logits
        batch = their_batch(base, screenshots, sentence)
        plain = theirs(base)(**batch).logits[0]
        adapted = PeftModel.from_pretrained(theirs(base), tmp_path)(**batch).logits[0]
    learned = torch.tensor([at - 1 for at, label in enumerate(sentence.labels) if label >= 0])
    assert torch.allclose(ours, adapted[learned], atol=1e-4)
    assert not torch.allclose(ours, plain[learned], atol=1e-2)


@every_family
def test_only_the_language_model_is_adapted(name):
    adapters = [weight for weight, _ in families.adapted(name).model.named_parameters() if "lora_" in weight]
    assert adapters
    assert all(".model.language_model.layers." in weight for weight in adapters)
    assert not any("visual" in weight for weight in adapters)


@every_family
def test_transformers_generate_equals_that_of_its_own_class(name):
    family = families.shared(name)
    episode = tiny.episode(2)
    sentence = family.sentences.prompt(replace(episode, steps=episode.steps[:2]))
    batch = their_batch(family.model, [step.screenshot for step in episode.steps[:2]], sentence)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with torch.inference_mode():
        ours = family.model.generate(**batch, **options)
        assert torch.equal(ours, theirs(family.model).generate(**batch, **options))
    assert ours.shape[1] == len(sentence) + 8


def opening_ids(sentences, goal: str) -> list[int]:
    return sentences.encode(sentences.opening(Episode("", "", goal, ()))).input_ids


@every_family
def test_generate_on_a_padded_batch_equals_generate_on_each_sentence(name):
    """Padded on the left, as transformers' processors pad."""
    family = families.shared(name)
    ids = [torch.tensor([opening_ids(family.sentences, goal)]) for goal in ("open settings 0", "open 1")]
    longest = max(one.shape[1] for one in ids)
    padded = torch.cat([torch.nn.functional.pad(one, (longest - one.shape[1], 0)) for one in ids])
    mask = torch.stack([torch.arange(longest) >= longest - one.shape[1] for one in ids]).long()
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert ids[0].shape != ids[1].shape
    with torch.inference_mode():
        together = family.model.generate(input_ids=padded, attention_mask=mask, **options)[:, longest:]
        alone = [family.model.generate(input_ids=one, **options)[0, one.shape[1] :] for one in ids]
    assert torch.equal(together, torch.stack(alone))


@every_family
def test_a_frozen_tower_builds_no_graph_and_stays_as_in_use(name):
    family = families.adapted(name)
    model = family.model.train()
    vision = model.get_base_model().vision
    assert model.training
    assert model.get_base_model().language_model.training
    assert not any(module.training for module in vision.modules())
    seen = []
    vision.register_forward_hook(lambda _, __, output: seen.append(output))
    loss = model(**family.row(family.sentences.build(tiny.episode()))).loss
    assert seen[0].last_hidden_state.grad_fn is None
    assert all(tokens.grad_fn is None for tokens in seen[0].pooler_output)
    loss.backward()
    assert all(parameter.grad is None for parameter in vision.parameters())


@every_family
def test_a_tower_that_trains_gets_gradients(name):
    family = families.family(name)
    model = family.model.train()
    assert model.vision.training
    model(**family.row(family.sentences.build(tiny.episode()))).loss.backward()
    assert model.vision.patch_embed.proj.weight.grad.abs().sum() > 0
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.vision.merger.parameters())


@every_family
def test_each_action_sees_its_own_screen(name):
    """Grey screens change the loss of every action."""
    family = families.shared(name)
    grey = replace(family.sentences, grey=True)
    with torch.inference_mode():
        seen, blind = (
            family.model(**family.row(writer.build(tiny.episode()))).token_losses for writer in (family.sentences, grey)
        )
    counts = [len(tiny.action_ids(family.sentences, action)) for action in tiny.ACTIONS]
    assert all((a != b).any() for a, b in zip(seen.split(counts), blind.split(counts), strict=True))


def test_limits_of_pixels_stay_with_the_weights_in_a_recipe_without_limits(tmp_path):
    """Such as those of a merged run, from which another run starts."""
    recipe = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(recipe)
    saved = families.shared("qwen2_5_vl").model.config.to_dict()
    for limits, most in (({}, recipe.max_pixels), ({"max_pixels": None}, MAX_PIXELS)):
        (tmp_path / "config.json").write_text(json.dumps(saved | limits))
        config = QWEN2_5_VL.configure(ModelRecipe(vlm={"checkpoint": str(tmp_path)}, min_pixels=64), words)
        assert (config.min_pixels, config.max_pixels) == (64, most)


@pytest.mark.parametrize("limits", [{"min_pixels": 2_000_000}, {"max_pixels": 2_000}])
def test_one_limit_that_contradicts_the_default_of_the_other_is_refused(limits):
    recipe = tiny_qwen.recipe("qwen2_5_vl").model_copy(update={"min_pixels": None, "max_pixels": None} | limits)
    with pytest.raises(CheckpointError, match=r"is greater than max_pixels .*; set both"):
        family_of_recipe(recipe).configure(recipe, tiny_qwen.tokenizer(tiny_qwen.recipe("qwen2_5_vl")))
