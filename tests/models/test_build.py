"""A model is built from the parts of its recipe, with the weights of their checkpoints."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from helpers import tiny
from helpers.models import families, tiny_qwen
from helpers.runs import adapted_run
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, T5Config

from vlm_agent.errors import CheckpointError, UserError
from vlm_agent.models import build as build_module
from vlm_agent.models.auto_ui.model import T5HeadApart
from vlm_agent.models.build import Vocabulary, build, build_model, build_tokenizer, configuration_of, load, save
from vlm_agent.models.family import family as family_named
from vlm_agent.models.family import family_of_recipe, processor_of
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.pretrained import configuration, language_model, vision_tower
from vlm_agent.models.qwen_vl.family import MIN_PIXELS
from vlm_agent.recipe.model import ModelRecipe, WeightsSource

VIT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
WORDS = tiny.tokenizer()
VOCABULARY = Vocabulary(tiny.LANGUAGE.vocabulary(), ("hello world",))
SHAPE = {"screen_size": tiny.SCREEN, "visual_grid": tiny.GRID}


def built(recipe: ModelRecipe):
    """(model, tokenizer)"""
    tokenizer = build_tokenizer(recipe, VOCABULARY)
    return build(recipe, tokenizer, tiny.LANGUAGE), tokenizer


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict:
    """A language model and a vision encoder in folders, as a download leaves them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    llama = AutoModelForCausalLM.from_config(AutoConfig.for_model(**tiny.LLAMA, vocab_size=len(WORDS)))
    llama.save_pretrained(folder / "llama")
    WORDS.save_pretrained(folder / "llama")
    vit = AutoModel.from_config(AutoConfig.for_model("vit", image_size=32, **VIT))
    vit.save_pretrained(folder / "vit")
    return {"language_model": {"checkpoint": str(folder / "llama")}, "vision": {"checkpoint": str(folder / "vit")}}


def test_checkpoints_keep_every_weight(checkpoints):
    model, tokenizer = built(ModelRecipe(**checkpoints, **SHAPE))
    llama = AutoModelForCausalLM.from_pretrained(checkpoints["language_model"]["checkpoint"]).state_dict()
    vit = AutoModel.from_pretrained(checkpoints["vision"]["checkpoint"]).state_dict()
    assert all(torch.equal(value, llama[name]) for name, value in model.language_model.state_dict().items())
    assert all(torch.equal(value, vit[name]) for name, value in model.vision.state_dict().items())
    assert tokenizer.get_vocab() == WORDS.get_vocab()
    assert model.config.logit_scale == 1.0


def test_a_checkpoint_saved_and_loaded_keeps_every_weight(checkpoints, tmp_path):
    model, _ = built(ModelRecipe(**checkpoints, **SHAPE))
    model.save_pretrained(tmp_path)
    loaded = LlamaViT.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


def test_the_recipe_decides_the_shape_and_the_dtype(checkpoints):
    options = {"image_mean": (0.1, 0.2, 0.3), "visual_norm": 0.5, "visual_positions": True, "element_loss": 0.5}
    model = build_model(ModelRecipe(**checkpoints, **SHAPE, **options, dtype="bfloat16"), WORDS)
    assert (model.config.screen_size, model.config.visual_grid) == (tiny.SCREEN, tiny.GRID)
    assert {name: getattr(model.config, name) for name in options} == options
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def from_nothing(**llama) -> ModelRecipe:
    return ModelRecipe(
        language_model={"config": tiny.LLAMA | llama},
        vision={"config": tiny.CONVNEXT},
        word_tokenizer={"vocabulary": 600},
        visual_positions=True,
        **SHAPE,
    )


def test_random_weights_have_the_tokenizers_vocabulary_and_depend_on_the_seed():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(built(from_nothing(vocab_size=99)))
    (model, tokenizer), (again, _) = models
    assert model.config.text_config.vocab_size == len(tokenizer)
    assert "hello" in tokenizer.get_vocab()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_random_weights_need_an_untied_head_and_equal_head_counts():
    with pytest.raises(UserError, match="as many key-value heads as heads"):
        built(from_nothing(num_key_value_heads=1))
    with pytest.raises(UserError, match="untied head"):
        built(from_nothing(tie_word_embeddings=True))


def test_random_bfloat16_weights_are_the_float32_ones_rounded():
    states = []
    for dtype in ("float32", "bfloat16"):
        torch.manual_seed(3)
        recipe = from_nothing().model_copy(update={"dtype": dtype})
        states.append(build(recipe, WORDS, tiny.LANGUAGE).language_model.state_dict())
    exact, rounded = states
    assert all(torch.equal(weight.bfloat16(), rounded[name]) for name, weight in exact.items())


def test_a_language_model_that_is_not_built_as_llama_is_is_refused():
    recipe = from_nothing().model_dump(exclude_none=True)
    recipe["language_model"] = {"config": {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2}}
    with pytest.raises(CheckpointError, match="'gpt2', which is not built as Llama is"):
        build_model(ModelRecipe(**recipe), WORDS)


@pytest.mark.parametrize(
    ("part", "config", "reason"),
    [
        ("language_model", {"model_type": "t5"}, "'t5', which is no causal language model"),
        ("language_model", VIT | {"model_type": "vit"}, "'vit', which is no causal language model"),
        (
            "language_model",
            tiny.LLAMA | {"model_type": "granite", "logits_scaling": 8.0},
            r"head \(logits_scaling: 8.0",
        ),
        ("language_model", tiny.LLAMA | {"model_type": "cohere"}, r"head \(logit_scale: 0.0625\)"),
        ("vision", tiny.LLAMA, "model.vision is a 'llama', which reads no pixels alone"),
    ],
)
def test_a_part_that_would_fail_or_compute_other_logits_is_refused(part, config, reason):
    recipe = from_nothing().model_dump(exclude_none=True) | {part: {"config": config}}
    with pytest.raises(CheckpointError, match=reason):
        recipe = ModelRecipe(**recipe)
        family_of_recipe(recipe).cost(configuration_of(recipe, WORDS)).screen_flops((64, 32), recipe.train, 2, False)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_unless_they_are_padding(checkpoints):
    words = copy.deepcopy(WORDS)
    words.add_tokens("<pad 2>")
    recipe = ModelRecipe(language_model=checkpoints["language_model"])
    assert configuration_of(recipe, words).vocab_size == len(words) - 1
    words.add_tokens("<tap>")
    with pytest.raises(CheckpointError, match=r"model.language_model: its tokenizer has .* \(none for '<tap>'\)"):
        configuration_of(recipe, words)


@pytest.mark.parametrize("method", ["gptq", "fp8"])
def test_a_quantised_checkpoint_is_refused_with_what_quantises_its_original_here(method, checkpoints, tmp_path):
    folder = shutil.copytree(checkpoints["language_model"]["checkpoint"], tmp_path / "quantised")
    content = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": method}}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=rf"has quantised weights \({method}\); .*model.quantisation"):
        configuration_of(ModelRecipe(language_model={"checkpoint": str(folder)}), WORDS)


def test_an_architecture_that_timm_does_not_have_is_named():
    recipe = from_nothing().model_dump(exclude_none=True)
    recipe["vision"] = {"config": {"model_type": "timm_wrapper", "architecture": "resnet_x"}}
    with pytest.raises(CheckpointError, match=r"^model\.vision cannot be loaded: .*'resnet_x' is not supported"):
        build_model(ModelRecipe(**recipe), WORDS)


@pytest.mark.parametrize("part", ["language_model", "vision"])
def test_a_missing_checkpoint_is_an_error_with_a_remedy(part, checkpoints, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    missing = str(tmp_path / "nowhere")
    with pytest.raises(CheckpointError) as error:
        built(ModelRecipe(**checkpoints | {part: {"checkpoint": missing}}, **SHAPE))
    assert str(error.value).startswith(f"model.{part}.checkpoint {missing!r} cannot be loaded: ")
    assert f"the folder {missing} does not exist" in str(error.value)


def test_a_gated_checkpoint_is_one_message_with_a_remedy(monkeypatch, checkpoints):
    def gated(*_, **__):
        raise OSError("You are trying to access a gated repo.\nMake sure to have access to it at …\n401 Client Error.")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", gated)
    with pytest.raises(CheckpointError) as error:
        built(ModelRecipe(**checkpoints, **SHAPE))
    first, second = str(error.value).splitlines()
    assert first.endswith("cannot be loaded: You are trying to access a gated repo.")
    assert "licence" in second


def test_a_checkpoint_of_pickles_is_refused_with_the_line_that_converts_it(checkpoints, tmp_path):
    vit = AutoModel.from_pretrained(checkpoints["vision"]["checkpoint"])
    vit.config.save_pretrained(tmp_path)
    torch.save(vit.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as error:
        built(ModelRecipe(**checkpoints | {"vision": {"checkpoint": str(tmp_path)}}, **SHAPE))
    assert f"AutoModel.from_pretrained({str(tmp_path)!r}).save_pretrained(FOLDER)" in str(error.value)
    AutoModel.from_pretrained(str(tmp_path)).save_pretrained(tmp_path / "converted")
    built(ModelRecipe(**checkpoints | {"vision": {"checkpoint": str(tmp_path / "converted")}}, **SHAPE))


def test_the_line_that_converts_pickles_keeps_the_head(tmp_path):
    """AutoModel would write a T5 without its head, and the embeddings would take its place."""
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": len(WORDS)}
    t5 = T5HeadApart(T5Config(**sizes))
    t5.config.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(content))
    torch.save(t5.state_dict(), tmp_path / "pytorch_model.bin")

    def model_in(folder: Path):
        source = {"encoder_decoder": {"checkpoint": str(folder)}}
        return build_model(ModelRecipe(**source, features={"extractor": "phone_vlm_tiny"}), WORDS)

    with pytest.raises(CheckpointError) as error:
        model_in(tmp_path)
    line = str(error.value).partition(".bin files: ")[2]
    exec(f"import transformers; transformers.{line}", {"FOLDER": tmp_path / "converted"})  # noqa: S102 (ours)
    assert torch.equal(model_in(tmp_path / "converted").t5.lm_head.weight, t5.lm_head.weight)


def test_a_tokenizer_without_an_end_mark_is_refused(checkpoints, tmp_path):
    folder = shutil.copytree(checkpoints["language_model"]["checkpoint"], tmp_path / "llama")
    words = copy.deepcopy(WORDS)
    words.eos_token = None
    words.save_pretrained(folder)
    recipe = ModelRecipe(language_model={"checkpoint": str(folder)}, vision=checkpoints["vision"], **SHAPE)
    with pytest.raises(CheckpointError, match="its tokenizer has no eos_token"):
        build_tokenizer(recipe, VOCABULARY)


def test_a_folder_without_weights_is_refused(checkpoints, tmp_path):
    AutoConfig.for_model("vit", **VIT).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="safetensors"):
        built(ModelRecipe(**checkpoints | {"vision": {"checkpoint": str(tmp_path)}}, **SHAPE))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama", "hidden_sise": 192}, "llama has no key 'hidden_sise'; did you mean 'hidden_size'"),
        ({"model_type": "lama"}, "model_type 'lama' is unknown; did you mean 'llama'"),
        (
            {"model_type": "qwen2_5_vl", "text_config": {"hidden_sise": 64}},
            "config.text_config: qwen2_5_vl_text has no key 'hidden_sise'; did you mean 'hidden_size'",
        ),
        (
            {"model_type": "qwen3_vl", "vision_config": {"depht": 2}},
            "config.vision_config: qwen3_vl.* has no key 'depht'; did you mean 'depth'",
        ),
    ],
)
def test_a_misspelt_key_of_a_sub_model_is_refused_with_the_nearest(config, reason):
    with pytest.raises(CheckpointError, match=reason):
        configuration(WeightsSource(config=config), "language_model")


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("language_model", {"model_type": "llama", "num_attention_heads": 0}),
        ("language_model", {"model_type": "qwen2", "num_attention_heads": 0}),
        ("vision", {"model_type": "vit", "patch_size": 0}),
    ],
)
def test_a_number_that_divides_and_is_0_is_refused_in_one_line(key, config):
    source = WeightsSource(config=config)
    with pytest.raises(CheckpointError, match=f"model.{key}.config: "):
        language_model(source, 10, torch.float32) if key == "language_model" else vision_tower(source)


@pytest.mark.parametrize("change", [{"hidden_act": "silly"}, {"num_key_value_heads": 0}])
def test_a_text_model_with_values_that_no_model_can_have_is_refused_in_one_line(change):
    config = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1} | change
    recipe = ModelRecipe(language_model={"config": config}, word_tokenizer={"vocabulary": 300})
    with pytest.raises(
        CheckpointError, match=r"^model.language_model.config: no model can have these values .* correct"
    ):
        build(recipe, tiny.tokenizer(), tiny.LANGUAGE)


def test_heads_that_do_not_divide_the_width_of_a_recipes_qwen_are_refused_in_one_line():
    config = copy.deepcopy(tiny_qwen.recipe("qwen2_5_vl").vlm.config)
    config["text_config"]["num_attention_heads"] = 7
    recipe = tiny_qwen.recipe("qwen2_5_vl", vlm={"config": config})
    with pytest.raises(CheckpointError, match=r"^model.vlm.config: no model can have these values .* num_heads.* corr"):
        build_model(recipe, tiny_qwen.tokenizer(recipe))


every_family = pytest.mark.parametrize("family", tiny_qwen.FAMILIES)


@pytest.fixture(scope="module")
def whole_checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A folder of each family, as transformers' own class saves it, knowing no limits."""
    folder = tmp_path_factory.mktemp("whole")
    for family in tiny_qwen.FAMILIES:
        model = families.shared(family).model
        plain = getattr(transformers, type(model).__name__)(copy.deepcopy(model.config))
        plain.load_state_dict(model.state_dict())
        del plain.config.min_pixels, plain.config.max_pixels
        plain.save_pretrained(folder / family)
        families.shared(family).words.save_pretrained(folder / family)
    return {family: folder / family for family in tiny_qwen.FAMILIES}


@every_family
def test_the_family_is_chosen_by_the_configuration_whatever_the_folder_is_called(family, whole_checkpoints, tmp_path):
    misnamed = tmp_path / "Qwen2-VL-llama"
    shutil.copytree(whole_checkpoints[family], misnamed)
    recipe = ModelRecipe(vlm={"checkpoint": str(misnamed)})
    model, tokenizer = built(recipe)
    assert type(model) is family_named(family).model
    expected = families.shared(family).model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert tokenizer.get_vocab() == families.shared(family).words.get_vocab()


@every_family
def test_pixel_limits_are_saved_with_the_model_and_come_back(family, whole_checkpoints, tmp_path):
    recipe = ModelRecipe(vlm={"checkpoint": str(whole_checkpoints[family])}, min_pixels=512, max_pixels=1024)
    model, tokenizer = built(recipe)
    assert configuration_of(recipe, tokenizer).max_pixels == 1024
    save(model, tokenizer, tmp_path)
    loaded, _ = load(tmp_path)
    screens = processor_of(loaded.config).screens
    assert (screens.min_pixels, screens.max_pixels) == (512, 1024)
    assert type(loaded) is family_named(family).model


@every_family
def test_a_checkpoint_has_our_pixel_limits_if_the_recipe_has_none(family, whole_checkpoints):
    recipe = ModelRecipe(vlm={"checkpoint": str(whole_checkpoints[family])}, max_pixels=100_000)
    config = configuration_of(recipe, build_tokenizer(recipe, VOCABULARY))
    assert (config.min_pixels, config.max_pixels) == (MIN_PIXELS, 100_000)


@every_family
def test_a_whole_model_from_random_weights_has_the_tokenizers_vocabulary(family):
    recipe = tiny_qwen.recipe(family)
    model, tokenizer = built(recipe)
    config = configuration_of(recipe, tokenizer)
    assert model.config.text_config.vocab_size == config.text_config.vocab_size == len(tokenizer)
    assert config.image_token_id == model.config.image_token_id == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert tokenizer.convert_tokens_to_ids("<|image_pad|>") != tokenizer.unk_token_id
    assert (config.min_pixels, config.max_pixels) == (model.config.min_pixels, model.config.max_pixels)


@pytest.mark.parametrize("model_type", ["qwen2_vl", "llava"])
def test_a_text_configuration_that_holds_no_keys_is_refused_in_one_line(model_type):
    recipe = ModelRecipe(vlm={"config": {"model_type": model_type, "text_config": 5}}, word_tokenizer={})
    with pytest.raises(CheckpointError, match=r"^model.vlm.config.text_config: 5 must be keys and values$"):
        configuration_of(recipe, tiny.tokenizer())


def test_a_model_that_sees_one_size_takes_no_pixel_limits(tmp_path):
    tiny.model(len(WORDS)).save_pretrained(tmp_path)
    WORDS.save_pretrained(tmp_path)
    limited = ModelRecipe(vlm={"checkpoint": str(tmp_path)}, max_pixels=1024)
    with pytest.raises(CheckpointError, match="sees every screen at one size"):
        built(limited)
    with pytest.raises(CheckpointError, match="sees every screen at one size"):
        configuration_of(limited, WORDS)
    model, _ = built(ModelRecipe(vlm={"checkpoint": str(tmp_path)}))
    assert isinstance(model, LlamaViT)


def test_a_whole_model_of_another_kind_is_refused(checkpoints):
    with pytest.raises(CheckpointError, match=r"model.vlm: a 'llama' is a language model without vision; call it"):
        built(ModelRecipe(vlm=checkpoints["language_model"]))


@every_family
def test_a_checkpoint_that_lacks_weights_is_refused_rather_than_filled_with_random_ones(
    family, whole_checkpoints, tmp_path
):
    shutil.copytree(whole_checkpoints[family], tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in weights if name.endswith("layers.1.mlp.up_proj.weight"))
    save_file({name: value for name, value in weights.items() if name != lost}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks 1 of the model's weights, \S*layers.1.mlp.up_proj.weight first"):
        built(ModelRecipe(vlm={"checkpoint": str(tmp_path)}))


@pytest.mark.parametrize(
    ("part", "words"),
    [("language_model", "layers.0.mlp.up_proj"), ("vision", "embeddings.cls_token"), ("vision", "pooler.")],
)
def test_a_part_that_lacks_weights_is_refused_except_for_a_pooler(part, words, checkpoints, tmp_path):
    shutil.copytree(checkpoints[part]["checkpoint"], tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if words not in name}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    recipe = ModelRecipe(**checkpoints | {part: {"checkpoint": str(tmp_path)}}, **SHAPE)
    if words == "pooler.":
        built(recipe)
        return
    with pytest.raises(CheckpointError, match=rf"model.{part}.checkpoint .* lacks \d+ of the model's weights"):
        built(recipe)


@every_family
def test_a_model_saved_here_is_one_that_transformers_reads(family, tmp_path):
    model = families.shared(family).model
    model.save_pretrained(tmp_path)
    plain = getattr(transformers, type(model).__name__).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, plain[name]) for name, value in model.state_dict().items())


def test_a_quantised_base_is_quantised_where_the_model_runs(tmp_path, monkeypatch):
    run, gpu, events = adapted_run.write_run(tmp_path, quantisation="nf4"), torch.device("cuda"), []
    monkeypatch.setattr(build_module, "_on", lambda model, device: events.append(device) or model)
    plain = build_module.quantise
    monkeypatch.setattr(build_module, "quantise", lambda model, kind: events.append(kind) or plain(model, kind))
    load(run, device=gpu)
    assert events == [gpu, "nf4", gpu]
