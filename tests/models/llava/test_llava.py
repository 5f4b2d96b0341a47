"""LLaVA computes what transformers' model computes, over packed rows, and acts as other families do."""

import json

import pytest
import torch
import transformers
from helpers import tiny
from helpers.agents.answer_ways import check_all_ways_agree
from helpers.models import families, tiny_llava
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.errors import UserError
from vlm_agent.models.build import build_model
from vlm_agent.models.family import family_of
from vlm_agent.models.llava.family import LLAVA
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.lora_layers import IN_PLACE_FLOPS
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.sentences import SCREEN_TOKEN

EPISODES = [tiny.episode(number, tiny.ACTIONS[: 2 + number]) for number in range(3)]
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)
PARTS = {"vision", "projector", "embeddings", "language_model", "norm", "head"}


@pytest.fixture(scope="module")
def family():
    return families.family(families.LLAVA)


@pytest.fixture(scope="module")
def published(family, tmp_path_factory):
    """transformers' own model with the same weights, loaded from a folder of `save_pretrained`."""
    folder = tmp_path_factory.mktemp("llava")
    family.model.save_pretrained(folder)
    loaded, info = transformers.LlavaForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    return folder, loaded.eval()


@torch.inference_mode()
def test_a_packed_row_has_the_logits_that_transformers_computes_for_each_sentence(family, published):
    sentences = [family.sentences.build(episode) for episode in EPISODES]
    found = family.model(**family.row(*sentences)).logits
    expected = []
    for sentence in sentences:
        ids, labels = torch.tensor([sentence.input_ids]), torch.tensor(sentence.labels)
        ids = ids.masked_fill(ids == SCREEN_TOKEN, published[1].config.image_token_id)
        pixels = torch.stack([(torch.from_numpy(screen) / 255 - MEAN) / STD for screen in sentence.screens])
        logits = published[1](input_ids=ids, pixel_values=pixels).logits[0]
        expected.append(logits[:-1][labels[1:] >= 0])
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)
    assert found.std() > 0.1


def test_transformers_folder_loads_with_equal_weights(family, published):
    again, own = LLAVA.load(published[0]).state_dict(), family.model.state_dict()
    assert again.keys() == own.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in own.items())


def test_one_prefill_and_phones_side_by_side_answer_as_step_by_step(family):
    agent = VlmAgent(family.model, family.words, family.sentences, batch_tokens=1 << 20)
    check_all_ways_agree(agent, EPISODES)


def test_a_screen_is_stretched_to_the_square_of_the_tower(family):
    sentence = family.sentences.build(EPISODES[0])
    assert {screen.shape for screen in sentence.screens} == {(3, 32, 32)}
    assert sentence.input_ids.count(SCREEN_TOKEN) == 16 * len(EPISODES[0])


def test_a_frozen_tower_has_no_gradient_and_every_other_part_can_have_one(family):
    model = families.family(families.LLAVA).model
    adapted = choose_trained_weights(
        model, TrainedParts(vision="frozen", **dict.fromkeys(PARTS - {"vision"}, "full")), Lora(rank=2)
    )
    adapted.train()(**family.row(family.sentences.build(EPISODES[2]))).loss.backward()
    assert not model.vision.training
    for part, path in LLAVA.parts.items():
        found = {weight.grad is not None for weight in model.get_submodule(path).parameters()}
        assert found == {part != "vision"}, part


FROZEN = dict.fromkeys(PARTS, "frozen")


@pytest.mark.parametrize(
    "parts",
    [
        FROZEN | {"language_model": "lora", "projector": "full"},
        dict.fromkeys(PARTS, "full"),
        FROZEN | {"vision": "lora"},
    ],
    ids=["projector", "full", "tower"],
)
def test_counted_flops_equal_measured_ones(parts, family):
    config, train = family.model.config, TrainedParts(**parts)
    model = families.family(families.LLAVA).model
    for part in (model.vision, model.language_model):
        part.set_attn_implementation("eager")
    choose_trained_weights(model, train, Lora(rank=2, dropout=0.0)).train()
    screens = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE_FLOPS) as counter, sdpa_kernel(SDPBackend.MATH):
        seen = torch.cat(model.model.get_image_features(model.normalised(screens), return_dict=True).pooler_output)
        forward = counter.get_total_flops()
        if seen.requires_grad:
            seen.sum().backward()
        backward = counter.get_total_flops() - forward
    counted = family_of(config).cost(config).screen_flops((32, 32), train, 2, False) * len(screens)
    assert counted.forward == pytest.approx(forward, rel=0.02)
    assert counted.backward == pytest.approx(backward, rel=0.02)


def test_other_towers_and_limits_of_pixels_are_refused():
    words = tiny_llava.tokenizer(tiny_llava.recipe())
    with pytest.raises(UserError, match="one size"):
        build_model(tiny_llava.recipe(max_pixels=1000), words)
    other = tiny_llava.CONFIG | {"vision_feature_select_strategy": "full"}
    with pytest.raises(UserError, match="supported are 'default' features"):
        build_model(tiny_llava.recipe(vlm={"config": other}), words)


def test_a_checkpoint_of_llavas_own_code_is_refused_before_its_weights_are_read(tmp_path):
    """transformers reads such a configuration as that of LLaVA 7B, whatever its sizes are."""
    content = {"model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"], "hidden_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(content | {"mm_vision_tower": "openai/clip-vit-large-patch14"}))
    recipe = tiny_llava.recipe(vlm={"checkpoint": str(tmp_path)}, word_tokenizer=None)
    with pytest.raises(UserError, match=r"LLaVA's own code; .* llava-hf/llava-1\.5-7b-hf"):
        LLAVA.configure(recipe, tiny_llava.tokenizer(tiny_llava.recipe()))
