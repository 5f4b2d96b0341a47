"""A model is built of what its recipe names, with the weights that are there."""

import pytest
import tiny
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.models.build import CheckpointError, Vocabulary, _config, build, build_model
from vlm_agent.models.llama_vit import LlamaViT
from vlm_agent.models.recipe import ModelRecipe, Source

VIT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
WORDS = tiny.tokenizer()
VOCABULARY = Vocabulary(PHRASES, tiny.BINS, ("hello world",))
SHAPE = {"screen_size": tiny.SCREEN, "visual_grid": tiny.GRID}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict:
    """A language model and a vision encoder in folders, as a download leaves them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    llama = AutoModelForCausalLM.from_config(AutoConfig.for_model(**tiny.LLAMA, vocab_size=len(WORDS)))
    llama.save_pretrained(folder / "llama")
    WORDS.save_pretrained(folder / "llama")
    vit = AutoModel.from_config(AutoConfig.for_model("vit", image_size=32, **VIT))
    vit.save_pretrained(folder / "vit")
    return {
        "language_model": {"checkpoint": str(folder / "llama")},
        "vision": {"checkpoint": str(folder / "vit")},
    }


def test_checkpoints_keep_every_weight(checkpoints):
    model, tokenizer = build(ModelRecipe(**checkpoints, **SHAPE), VOCABULARY)
    llama = AutoModelForCausalLM.from_pretrained(checkpoints["language_model"]["checkpoint"]).state_dict()
    vit = AutoModel.from_pretrained(checkpoints["vision"]["checkpoint"]).state_dict()
    assert all(torch.equal(value, llama[name]) for name, value in model.language_model.state_dict().items())
    assert all(torch.equal(value, vit[name]) for name, value in model.vision.state_dict().items())
    assert tokenizer.get_vocab() == WORDS.get_vocab()
    assert model.config.logit_scale == 1.0


def test_a_checkpoint_saved_and_loaded_keeps_every_weight(checkpoints, tmp_path):
    model, _ = build(ModelRecipe(**checkpoints, **SHAPE), VOCABULARY)
    model.save_pretrained(tmp_path)
    loaded = LlamaViT.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


def test_the_recipe_decides_the_shape_and_the_dtype(checkpoints):
    options = {"image_mean": (0.1, 0.2, 0.3), "visual_norm": 0.5, "visual_positions": True, "element_loss": 0.5}
    model = build_model(ModelRecipe(**checkpoints, **SHAPE, **options, dtype="bfloat16"), 0)
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


def test_from_nothing_the_vocabulary_is_the_tokenizers_and_the_seed_decides():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(build(from_nothing(vocab_size=99), VOCABULARY))
    (model, tokenizer), (again, _) = models
    assert model.config.text_config.vocab_size == len(tokenizer)
    assert "hello" in tokenizer.get_vocab()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_from_nothing_an_ordinary_llama_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="as many key-value heads as heads"):
        build(from_nothing(num_key_value_heads=1), VOCABULARY)
    with pytest.raises(ValueError, match="untied head"):
        build(from_nothing(tie_word_embeddings=True), VOCABULARY)


@pytest.mark.parametrize("part", ["language_model", "vision"])
def test_a_checkpoint_that_is_not_there_says_what_to_do(part, checkpoints, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    missing = str(tmp_path / "nowhere")
    with pytest.raises(CheckpointError) as error:
        build(ModelRecipe(**checkpoints | {part: {"checkpoint": missing}}, **SHAPE), VOCABULARY)
    assert str(error.value).startswith(f"model.{part}.checkpoint {missing!r} cannot be loaded: ")
    assert "hf auth login" in str(error.value)


def test_a_gated_checkpoint_says_what_to_do_in_one_message(monkeypatch, checkpoints):
    def gated(*_, **__):
        raise OSError("You are trying to access a gated repo.\nMake sure to have access to it at …\n401 Client Error.")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", gated)
    with pytest.raises(CheckpointError) as error:
        build(ModelRecipe(**checkpoints, **SHAPE), VOCABULARY)
    first, second = str(error.value).splitlines()
    assert first.endswith("cannot be loaded: You are trying to access a gated repo.")
    assert "licence" in second


def test_a_checkpoint_of_pickles_is_refused(checkpoints, tmp_path):
    vit = AutoModel.from_pretrained(checkpoints["vision"]["checkpoint"])
    vit.config.save_pretrained(tmp_path)
    torch.save(vit.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors"):
        build(ModelRecipe(**checkpoints | {"vision": {"checkpoint": str(tmp_path)}}, **SHAPE), VOCABULARY)


def test_a_folder_without_weights_is_refused(checkpoints, tmp_path):
    AutoConfig.for_model("vit", **VIT).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="safetensors"):
        build(ModelRecipe(**checkpoints | {"vision": {"checkpoint": str(tmp_path)}}, **SHAPE), VOCABULARY)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama", "hidden_sise": 192}, "llama has no key 'hidden_sise'; did you mean 'hidden_size'"),
        ({"model_type": "lama"}, "model_type 'lama' is unknown; did you mean 'llama'"),
    ],
)
def test_a_misspelt_key_of_a_sub_model_is_refused_with_the_nearest(config, reason):
    with pytest.raises(CheckpointError, match=reason):
        _config(Source(config=config), "language_model")
