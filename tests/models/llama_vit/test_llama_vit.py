"""Llama+ViT: any encoder's features reach the right visual token, and the loss is as documented."""

import pytest
import torch
from helpers import tiny
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoConfig, AutoModel

from vlm_agent.errors import UserError
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.models.llama_vit.model import LlamaViT, grid_sinusoid, merged
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence

VIT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
TIMM_VIT = {"depth": 1, "embed_dim": 16, "num_heads": 2, "patch_size": 8, "img_size": [64, 32]}
ENCODERS = {
    "convnext": tiny.CONVNEXT,
    "vit": VIT | {"model_type": "vit", "image_size": 32},
    "deit": VIT | {"model_type": "deit", "image_size": 32},
    "dinov2": VIT | {"model_type": "dinov2", "image_size": 32},
    "dinov2_with_registers": VIT | {"model_type": "dinov2_with_registers", "image_size": 32, "num_register_tokens": 3},
    "clip_vision_model": VIT | {"model_type": "clip_vision_model", "image_size": 32},
    "siglip_vision_model": VIT | {"model_type": "siglip_vision_model", "image_size": 32},
    "timm ViT": {"model_type": "timm_wrapper", "architecture": "vit_tiny_patch16_224", "model_args": TIMM_VIT},
    "timm DINOv2 with registers": {
        "model_type": "timm_wrapper",
        "architecture": "vit_small_patch14_reg4_dinov2",
        "model_args": TIMM_VIT,
    },
    "timm ConvNeXt": {
        "model_type": "timm_wrapper",
        "architecture": "convnext_atto",
        "model_args": {"depths": [1, 1, 1, 1], "dims": [4, 8, 8, 16], "output_stride": 8},
    },
    "timm Swin": {
        "model_type": "timm_wrapper",
        "architecture": "swin_tiny_patch4_window7_224",
        "model_args": {"depths": [1, 1], "num_heads": [1, 2], "embed_dim": 8, "img_size": [64, 32], "window_size": 2},
    },
}
WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)


@pytest.fixture(scope="module")
def batch():
    return row([SENTENCES.build(tiny.episode(0))])


def row(sentences: list[Sentence]) -> dict:
    return {name: value for name, value in collate(sentences).items() if name not in NOT_FOR_MODELS}


def see_without_mixing(model: LlamaViT, screens: torch.Tensor) -> torch.Tensor:
    """Visual tokens with attention between patches off, so that each shows its own place only."""
    for module in model.vision.modules():
        if type(module).__name__.endswith("Attention"):
            module.register_forward_hook(lambda _, __, output: _zeroed(output))
    with torch.inference_mode():
        return model.see(screens)[0]


def _zeroed(output):
    return (torch.zeros_like(output[0]), *output[1:]) if isinstance(output, tuple) else torch.zeros_like(output)


def test_a_merged_token_holds_its_places_end_to_end_and_no_other():
    features = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    tokens = merged(features, (4, 3), (1, 2))
    assert tokens.shape == (2, 6, 4, 3)
    for row in range(4):
        for column in range(3):
            neighbours = features[:, :, row, 2 * column : 2 * column + 2]
            assert torch.equal(tokens[:, :, row, column].view(2, 3, 2), neighbours)


def test_a_token_merged_from_two_rows_and_three_columns_reads_them_row_by_row():
    features = torch.arange(1 * 2 * 4 * 6.0).view(1, 2, 4, 6)
    tokens = merged(features, (2, 2), (2, 3))
    for row in range(2):
        for column in range(2):
            places = features[0, :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            assert tokens[0, :, row, column].tolist() == places.flatten().tolist()


def test_pixels_are_normalised_by_mean_and_standard_deviation_of_each_channel():
    mean, std = [0.1, 0.4, 0.7], [0.2, 0.3, 0.9]
    model = tiny.model(len(WORDS), image_mean=mean, image_std=std)
    screens = torch.randint(0, 256, (2, 3, *tiny.SCREEN), dtype=torch.uint8)
    seen = []
    model.vision.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].clone()))
    model.see(screens)
    expected = (screens / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    assert torch.allclose(seen[0], expected, atol=1e-5)


def test_places_are_merged_row_by_row_after_pooling():
    features = torch.randn(1, 2, 8, 8)
    tokens = merged(features, (2, 2), (2, 1))
    fine = functional.adaptive_avg_pool2d(features, (4, 2))
    assert torch.equal(tokens[0, :, 1, 0].view(2, 2), fine[0, :, 2:4, 0])
    assert torch.equal(merged(features, (2, 4), (1, 1)), functional.adaptive_avg_pool2d(features, (2, 4)))


def test_visual_merge_is_saved_and_the_loaded_model_has_the_same_logits(tmp_path, batch):
    model = tiny.model(len(WORDS), visual_grid=(4, 2), visual_merge=(1, 2))
    assert model.projector.linear.in_features == 2 * 16
    model.save_pretrained(tmp_path)
    again = LlamaViT.from_pretrained(tmp_path).eval()
    screens = torch.randint(0, 256, (2, 3, *tiny.SCREEN), dtype=torch.uint8)
    assert torch.equal(model.see(screens)[1], again.see(screens)[1])


# Not timm's ConvNeXt: with random weights, its four stages spread what they see.
@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "timm ConvNeXt"])
def test_a_patch_of_the_screen_moves_the_visual_token_at_its_place(name):
    model = tiny.model(len(WORDS), ENCODERS[name], visual_grid=(8, 4))
    rows, columns = 8, 4
    for row, column in [(0, 0), (0, 3), (5, 1), (7, 3)]:
        screens = torch.zeros(2, 3, *tiny.SCREEN, dtype=torch.uint8)
        screens[1, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = torch.arange(64).view(8, 8) * 4
        dark, lit = see_without_mixing(model, screens)
        moved = (lit - dark).norm(dim=-1).view(rows, columns)
        assert divmod(int(moved.argmax()), columns) == (row, column)


@pytest.mark.parametrize("name", ENCODERS)
def test_it_saves_and_loads_bit_for_bit(name, tmp_path, batch):
    model = tiny.model(len(WORDS), ENCODERS[name])
    model.save_pretrained(tmp_path)
    loaded = LlamaViT.from_pretrained(tmp_path).eval()
    assert loaded.config.to_dict().keys() == model.config.to_dict().keys()
    with torch.inference_mode():
        assert torch.equal(model(**batch).logits, loaded(**batch).logits)


def test_tied_embeddings_stay_tied_through_a_file(tmp_path, batch):
    model = tiny.model(len(WORDS), llama=tiny.LLAMA | {"tie_word_embeddings": True})
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    model.save_pretrained(tmp_path)
    assert "language_model.lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded = LlamaViT.from_pretrained(tmp_path).eval()
    assert loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
    with torch.inference_mode():
        assert torch.equal(model(**batch).logits, loaded(**batch).logits)


def test_every_option_survives_a_file(tmp_path, batch):
    options = {"visual_norm": 0.7, "visual_positions": True, "element_loss": 0.25, "logit_scale": 0.125}
    model = tiny.model(len(WORDS), **options, image_mean=(0.1, 0.2, 0.3), image_std=(0.4, 0.5, 0.6))
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    assert {name: getattr(loaded.config, name) for name in options} == options
    assert loaded.config.screen_size == tiny.SCREEN
    with torch.inference_mode():
        assert torch.equal(model(**batch).logits, loaded(**batch).logits)


def test_it_also_loads_by_its_config_alone(tmp_path):
    config = tiny.model(len(WORDS)).config
    config.save_pretrained(tmp_path)
    assert isinstance(AutoModel.from_config(AutoConfig.from_pretrained(tmp_path)), LlamaViT)


def test_the_clip_tower_of_a_whole_clip_is_a_model_of_its_own(tmp_path):
    from transformers import CLIPConfig, CLIPModel

    from vlm_agent.models.pretrained import vision_tower
    from vlm_agent.recipe.model import WeightsSource

    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    CLIPModel(CLIPConfig(text_config=text, vision_config=ENCODERS["clip_vision_model"])).save_pretrained(
        tmp_path / "clip"
    )
    vision = vision_tower(WeightsSource(checkpoint=str(tmp_path / "clip")))
    reference = tiny.model(len(WORDS), ENCODERS["clip_vision_model"])
    model = LlamaViT(reference.config, vision, reference.language_model).eval()
    model.save_pretrained(tmp_path / "model")
    loaded = LlamaViT.from_pretrained(tmp_path / "model").eval()
    screens = torch.randint(0, 256, (1, 3, *tiny.SCREEN), dtype=torch.uint8)
    with torch.inference_mode():
        assert torch.equal(model.see(screens)[1], loaded.see(screens)[1])


@pytest.mark.parametrize("name", ENCODERS)
def test_a_frozen_encoder_builds_no_graph_and_stays_as_in_use(name, batch):
    model = tiny.model(len(WORDS), ENCODERS[name])
    model.vision.requires_grad_(False)
    model.train()
    assert not any(module.training for module in model.vision.modules())
    outputs = []
    model.vision.register_forward_hook(lambda _, __, output: outputs.append(output.last_hidden_state))
    loss = model(**batch).loss
    assert outputs[0].grad_fn is None
    loss.backward()
    assert model.projector.linear.weight.grad.abs().sum() > 0


def test_an_encoder_that_trains_gets_gradients(batch):
    model = tiny.model(len(WORDS)).train()
    assert model.vision.training
    model(**batch).loss.backward()
    assert next(model.vision.parameters()).grad.abs().sum() > 0


@pytest.mark.parametrize("screens", [0, 1, 3, None])
def test_the_number_of_screens_must_match_the_sequence(screens):
    model = tiny.model(len(WORDS))
    ids = torch.tensor([[1] + [SCREEN_TOKEN] * 16 + [5]])
    pictures = None if screens is None else torch.zeros(screens, 3, *tiny.SCREEN, dtype=torch.uint8)
    with pytest.raises(ValueError, match="places for 16 visual tokens"):
        model(ids, pictures)


def test_an_encoder_whose_map_cannot_be_unfolded_is_an_error():
    swin = {
        "model_type": "swin",
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 2],
        "window_size": 2,
        "patch_size": 4,
    }
    model = tiny.model(len(WORDS), swin | {"image_size": 32})
    with pytest.raises(UserError, match="swin"):
        model.see(torch.zeros(1, 3, *tiny.SCREEN, dtype=torch.uint8))


def test_a_screen_that_is_no_multiple_of_a_patch_is_refused():
    vit = {"model_type": "vit", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 32}
    model = tiny.model(len(WORDS), vit | {"num_attention_heads": 2, "patch_size": 12})
    with pytest.raises(UserError, match=r"^model.screen_size \[64, 32\]: vit would .* set multiples of 12$"):
        model.see(torch.zeros(1, 3, *tiny.SCREEN, dtype=torch.uint8))


def full_loss(model: LlamaViT, batch: dict, **options) -> torch.Tensor:
    """The loss as anybody would write it: all logits, shifted, averaged."""
    logits = model(batch["input_ids"], batch["screens"]).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=IGNORED, **options
    )


def gradients(model: LlamaViT, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_logits_only_where_there_is_a_label_give_the_same_loss_and_gradients(batch):
    model = tiny.model(len(WORDS))
    output = model(**batch)
    assert output.logits.shape == (int((batch["labels"] != IGNORED).sum()), len(WORDS))
    few, all_ = gradients(model, output.loss), gradients(model, full_loss(model, batch))
    assert output.loss.item() == pytest.approx(full_loss(model, batch).item(), abs=1e-6)
    assert few.keys() == all_.keys()
    for name in few:
        assert torch.allclose(few[name], all_[name], atol=1e-6), name


def test_batches_whose_gradients_are_summed_weigh_every_token_alike():
    sentences = [SENTENCES.build(tiny.episode(0)), SENTENCES.build(tiny.episode(1), last=1)]
    items = torch.tensor(sum(sentence.supervised for sentence in sentences))
    model = tiny.model(len(WORDS)).train()
    choose_attention(model.vision, model.language_model)
    together = gradients(model, model(**row(sentences)).loss)
    parts = [gradients(model, model(**row([one]), num_items_in_batch=items).loss) for one in sentences]
    for name in together:
        assert torch.allclose(together[name], parts[0][name] + parts[1][name], atol=1e-6), name


def test_the_element_loss_of_summed_batches_is_an_average_not_a_sum():
    sentence = SENTENCES.build(tiny.episode(0))
    sentence.element_labels = [torch.full((8,), 7).numpy()] * len(sentence.screens)
    model = tiny.model(len(WORDS), element_loss=0.5).train()
    one = model(**row([sentence]))
    half = model(**row([sentence]), num_items_in_batch=2 * sentence.supervised)
    assert half.loss.item() == pytest.approx(one.loss.item() / 2, rel=1e-5)
    assert one.loss.item() == pytest.approx((one.token_losses.mean() + 0.5 * one.element_loss).item(), rel=1e-5)
    assert torch.equal(half.token_losses, one.token_losses)
    assert one.element_loss > 0


@pytest.mark.parametrize("norm", [None, 0.7])
def test_the_element_loss_is_the_cross_entropy_of_the_cosine_like_product_with_the_word_embeddings(norm):
    model = tiny.model(len(WORDS), element_loss=0.5, visual_norm=norm)
    seen, labels = torch.randn(2, 8, 32), torch.full((2, 8), IGNORED)
    labels[0, 3], labels[1, 5] = 7, 11
    table = model.get_input_embeddings().weight
    scale = 32**0.5 * (1.0 if norm is None else norm)
    expected = [
        -torch.log_softmax(table @ seen[screen, place] / scale, 0)[label]
        for screen, place, label in ((0, 3, 7), (1, 5, 11))
    ]
    assert model.name_elements(seen, labels).item() == pytest.approx(sum(expected).item() / 2, rel=1e-5)


def test_element_loss_is_for_training_only():
    sentence = SENTENCES.build(tiny.episode(0))
    sentence.element_labels = [torch.full((8,), 7).numpy()] * len(sentence.screens)
    output = tiny.model(len(WORDS), element_loss=0.5)(**row([sentence]))
    assert output.element_loss is None
    assert output.loss == output.token_losses.mean()


@pytest.mark.parametrize("items", [None, 0, torch.tensor(0)])
def test_a_batch_with_nothing_to_learn_has_no_loss_and_no_gradient(batch, items):
    model = tiny.model(len(WORDS)).train()
    nothing = batch | {"labels": torch.full_like(batch["labels"], IGNORED), "target_places": torch.arange(0)}
    loss = model(**nothing, num_items_in_batch=items).loss
    assert loss.item() == 0
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_gradient_checkpointing_changes_no_gradient(batch):
    model = tiny.model(len(WORDS)).train()
    plain = gradients(model, model(**batch).loss)
    model.activation_checkpointing_enable()
    saved = gradients(model, model(**batch).loss)
    assert all(torch.allclose(plain[name], saved[name], atol=1e-6) for name in plain)


def test_half_precision_runs_throughout(batch):
    model = tiny.model(len(WORDS), visual_norm=0.7, visual_positions=True).to(torch.bfloat16)
    assert torch.isfinite(model(**batch).loss)


def test_places_have_different_sinusoids_and_near_ones_similar():
    grid = grid_sinusoid(8, 4, 64).view(8, 4, 64)
    assert (grid[0, :, :32] == grid[0, :1, :32]).all()
    assert (grid[:, 0, 32:] == grid[:1, 0, 32:]).all()
    near, far = ((grid[0, 0] * grid[row, 0]).sum() for row in (1, 7))
    assert near > far
