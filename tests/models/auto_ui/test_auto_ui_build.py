"""Auto-UI from a recipe: plain T5 checkpoints, converted ones, random weights, adapters, and what does not fit."""

import pytest
import torch
import transformers
from helpers import tiny
from helpers.models import tiny_auto_ui
from peft import PeftModel
from transformers import T5Config, T5ForConditionalGeneration

from vlm_agent.action_languages.auto_ui import AutoUiLanguage
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.errors import CheckpointError, RecipeError, UserError
from vlm_agent.models.auto_ui.family import AUTO_UI
from vlm_agent.models.auto_ui.model import AutoUi
from vlm_agent.models.build import Vocabulary, build, build_model, build_tokenizer, configuration_of, load, save
from vlm_agent.models.family import family_of, processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import base_folder
from vlm_agent.models.weights.adapters import (
    choose_trained_weights,
    count_parameters,
    load_adapter,
    merge_adapter,
    save_trained_weights,
)
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.models.word_tokenizer import coordinate_ids
from vlm_agent.recipe.model import Lora, ModelRecipe, TrainedParts

WORDS = tiny.tokenizer()
VOCABULARY = Vocabulary(tiny.LANGUAGE.vocabulary(), ("hello world",))
FEATURES = {"extractor": "phone_vlm_tiny", "form": "patches"}
CONFIG = {key: value for key, value in tiny_auto_ui.T5.items() if key != "model_type"}
both_heads = pytest.mark.parametrize("tied", [False, True], ids=["head apart", "head tied"])


def recipe(**model) -> ModelRecipe:
    return ModelRecipe(**{"features": FEATURES} | model)


def random_recipe(**model) -> ModelRecipe:
    return recipe(encoder_decoder={"config": tiny_auto_ui.T5}, word_tokenizer={"vocabulary": 500}, **model)


def logits(model: torch.nn.Module, words=WORDS, size: int = 192) -> torch.Tensor:
    sentences = tiny_auto_ui.sentences(words, 3)
    for number, sentence in enumerate(sentences):
        sentence.screens = [torch.randn(4, size, generator=torch.Generator().manual_seed(number)).half().numpy()]
    batch = AUTO_UI.processor(model.config).collate(sentences)
    with torch.inference_mode():
        return model.eval()(**{name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}).logits


def t5_folder(folder, tied: bool, **keys) -> str:
    """A plain T5 as published, with a tokenizer; its head is a matrix of its own unless `tied`."""
    torch.manual_seed(0)
    t5 = T5ForConditionalGeneration(T5Config(**CONFIG | {"vocab_size": 512, "tie_word_embeddings": tied} | keys))
    if not tied:
        t5.lm_head.weight = torch.nn.Parameter(torch.randn(512, 16))
        t5.config.tie_word_embeddings = False
        t5.all_tied_weights_keys = {}
    t5.save_pretrained(folder)
    WORDS.save_pretrained(folder)
    return str(folder)


@both_heads
def test_a_t5_keeps_its_weights_and_starts_a_fusion_from_torchs_generator(tied, tmp_path):
    folder = t5_folder(tmp_path, tied)
    wanted = recipe(encoder_decoder={"checkpoint": folder})
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(build_model(wanted, build_tokenizer(wanted, VOCABULARY)))
    first, again, other = models
    assert (first.t5.lm_head.weight is first.t5.shared.weight) == tied == first.config.tie_word_embeddings
    assert first.config.text_config.scale_decoder_outputs == tied
    assert first.config.features == {**FEATURES, "checkpoint": None, "tokens": 196, "size": 192}
    assert torch.equal(logits(first), logits(again))
    assert not torch.equal(first.fusion.gate_dense.weight, other.fusion.gate_dense.weight)
    assert AUTO_UI.notes(first) == (f"{folder} has no fusion of screen features: it starts from random weights",)
    ids = torch.tensor([[5, 6, 7]])
    t5 = T5ForConditionalGeneration.from_pretrained(folder).eval()
    expected = t5(input_ids=ids, decoder_input_ids=ids)
    with torch.no_grad():  # a closed gate leaves the T5
        encoded = first.eval().t5.encoder(inputs_embeds=first.t5.shared(ids)).last_hidden_state
        found = first.logits(first.decode(ids, encoded, torch.ones_like(ids)))
    assert torch.allclose(found, expected.logits, atol=1e-5)


def test_a_head_that_is_not_scaled_may_be_tied(tmp_path):
    """This is how transformers 5 trains a FLAN's configuration from random weights: the checkpoint has no head."""
    config = T5Config(**CONFIG, vocab_size=512, tie_word_embeddings=False)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    WORDS.save_pretrained(tmp_path)
    model = build_model(recipe(encoder_decoder={"checkpoint": str(tmp_path)}), WORDS)
    assert model.t5.lm_head.weight is model.t5.shared.weight
    assert model.config.tie_word_embeddings
    assert not model.config.text_config.scale_decoder_outputs


def test_a_head_is_not_tied_where_weights_cannot_be_compared(tmp_path, monkeypatch):
    """Under ZeRO-3 partitioned weights are empty, so that transformers finds every two of them equal."""
    monkeypatch.setattr(transformers.modeling_utils, "_tied_params_are_equal", lambda one, other: True)
    model = build_model(recipe(encoder_decoder={"checkpoint": t5_folder(tmp_path, tied=False)}), WORDS)
    assert model.t5.lm_head.weight is not model.t5.shared.weight


def test_trained_parts_in_float32_read_a_frozen_t5_in_bfloat16(tmp_path):
    folder, results = t5_folder(tmp_path / "t5", tied=False), []
    for dtype in ("float32", "bfloat16"):
        wanted = recipe(encoder_decoder={"checkpoint": folder}, dtype=dtype)
        torch.manual_seed(1)
        model = choose_trained_weights(build_model(wanted, WORDS), ADAPTED, Lora(rank=2, dropout=0.0))
        results.append(logits(model).float())
    exact, rounded = results
    assert (exact - rounded).abs().mean() < 0.1 * exact.std()


@both_heads
def test_a_saved_run_is_loaded_and_is_a_base_and_a_checkpoint(tied, tmp_path):
    wanted = recipe(encoder_decoder={"checkpoint": t5_folder(tmp_path / "t5", tied)})
    model = build_model(wanted, WORDS)
    save(model, WORDS, tmp_path / "run")
    (tmp_path / "run/recipe.yaml").write_text("model: {}\n")
    loaded, _ = load(tmp_path / "run")
    assert torch.equal(logits(loaded), logits(model))
    assert torch.equal(logits(build_model(ModelRecipe(base=str(tmp_path / "run")), WORDS)), logits(model))
    again = recipe(encoder_decoder={"checkpoint": str(tmp_path / "run/model")}, train={"projector": "frozen"})
    assert torch.equal(logits(build_model(again, WORDS)), logits(model))
    assert AUTO_UI.notes(build_model(again, WORDS)) == ()


def test_random_weights_have_the_vocabulary_of_their_tokenizer():
    wanted = random_recipe()
    words = build_tokenizer(wanted, VOCABULARY)
    torch.manual_seed(3)
    model = build(wanted, words, tiny.LANGUAGE)
    assert model.t5.shared.weight.shape == (len(words), 16)
    assert model.config.text_config.eos_token_id == words.eos_token_id
    assert model.config.start_token_id == words.pad_token_id
    configured = configuration_of(wanted, words)
    assert configured.features == model.config.features
    assert configured.text_config.vocab_size == len(words)
    torch.manual_seed(3)
    assert torch.equal(logits(build(wanted, words, tiny.LANGUAGE), words), logits(model, words))
    assert processor_of(model.config).sentence_kinds == ("chain_of_actions",)


def test_word_embeddings_start_from_a_trained_model():
    shape = tiny_auto_ui.T5 | {"d_model": 192}
    wanted = recipe(
        encoder_decoder={"config": shape}, word_tokenizer={"vocabulary": 500}, word_embeddings="phone_vlm_tiny"
    )
    vocabulary = Vocabulary(tiny.LANGUAGE.vocabulary(), ("open settings zyzzyva",))
    words = build_tokenizer(wanted, vocabulary)
    model = build(wanted, words, tiny.LANGUAGE)
    base, theirs = load(base_folder("phone_vlm_tiny"))
    table, own = base.get_input_embeddings().weight, theirs.get_vocab()
    shared = {token: number for token, number in words.get_vocab().items() if token in own}
    assert 200 < len(shared) < len(words)
    assert all(torch.equal(model.t5.shared.weight[number], table[own[token]]) for token, number in shared.items())
    assert AUTO_UI.notes(model) == (
        f"word embeddings: {len(shared)} of {len(words)} tokens start from phone_vlm_tiny's",
    )
    with pytest.raises(CheckpointError, match="its embeddings have 192 numbers and d_model is 16; set d_model to 192"):
        build(random_recipe(word_embeddings="phone_vlm_tiny"), words, tiny.LANGUAGE)


def test_new_position_biases_prefer_near_tokens_and_trained_ones_are_kept(tmp_path):
    """Every head but the last, less from head to head."""
    torch.manual_seed(0)
    stack_names = ("encoder", "decoder")
    model = build_model(random_recipe(), WORDS)
    for name in stack_names:
        attention = getattr(model.t5, name).block[0].layer[0].SelfAttention
        bias = attention.compute_bias(30, 30)[0].detach()
        near, far = bias[:, 25, 24], bias[:, 25, 5]
        assert (near[:-1] - far[:-1]).argmax() == 0
        assert near[0] - far[0] > 10
        assert abs(near[-1] - far[-1]) < 1
    folder = t5_folder(tmp_path, True)
    trained = T5ForConditionalGeneration.from_pretrained(folder)
    fused = build_model(recipe(encoder_decoder={"checkpoint": folder}), WORDS)
    for name in stack_names:
        ours, theirs = (getattr(one, name).block[0].layer[0].SelfAttention for one in (fused.t5, trained))
        assert torch.equal(ours.relative_attention_bias.weight, theirs.relative_attention_bias.weight)


def test_coordinates_start_from_the_nearest_ones_of_the_trained_model():
    shape = tiny_auto_ui.T5 | {"d_model": 192}
    wanted = recipe(
        encoder_decoder={"config": shape}, word_tokenizer={"vocabulary": 800}, word_embeddings="phone_vlm_tiny"
    )
    language = AutoUiLanguage()
    words = build_tokenizer(wanted, Vocabulary(language.vocabulary(), ("open settings",)))
    table = build(wanted, words, language).t5.shared.weight
    base, theirs = load(base_folder("phone_vlm_tiny"))
    known = base.get_input_embeddings().weight
    own = BinnedLanguage(100).vocabulary()
    for axis, ours in ((0, "[0.37"), (1, ", 0.37")):
        (coordinate,) = [one for one in language.vocabulary().axis(axis) if one.piece == ours]
        (number,) = coordinate_ids(words, [coordinate])
        (other,) = coordinate_ids(theirs, [own.axis(axis)[37]])
        assert torch.equal(table[number], known[other])


ADAPTED = TrainedParts(projector="full", embeddings="frozen", language_model="lora", norm="full", head="frozen")


def adapted(model: AutoUi, train: TrainedParts = ADAPTED) -> PeftModel:
    torch.manual_seed(5)
    chosen = choose_trained_weights(model, train, Lora(rank=2, dropout=0.0))
    with torch.no_grad():
        for name, weight in chosen.named_parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * (0.3 if "lora_B" in name else 0.1))
    return chosen


@both_heads
@pytest.mark.parametrize(
    "train",
    [ADAPTED, ADAPTED.model_copy(update={"projector": "lora"}), ADAPTED.model_copy(update={"language_model": "full"})],
    ids=["fusion full", "fusion lora", "T5 full beside a fusion lora"],
)
def test_an_adapter_is_saved_loaded_and_merged(tied, train, tmp_path):
    if train.language_model == "full":
        train = train.model_copy(update={"projector": "lora"})
    model = adapted(tiny_auto_ui.model(len(WORDS), tied), train)
    before = logits(model, size=6)
    assert not torch.allclose(before, logits(tiny_auto_ui.model(len(WORDS), tied), size=6), atol=1e-3)
    save_trained_weights(model, tmp_path)
    loaded = load_adapter(tiny_auto_ui.model(len(WORDS), tied), tmp_path)
    assert torch.equal(logits(loaded, size=6), before)
    exact = logits(loaded.double(), size=6)
    merged = merge_adapter(loaded)
    assert torch.allclose(logits(merged, size=6), exact, atol=1e-9)
    merged.float()
    merged.save_pretrained(tmp_path / "merged")
    assert torch.equal(logits(AUTO_UI.load(tmp_path / "merged"), size=6), logits(merged, size=6))


WITH_LINEAR_LAYERS = ("projector", "embeddings", "language_model", "head")


@pytest.mark.parametrize(
    ("part", "how"), [*((part, how) for part in WITH_LINEAR_LAYERS for how in ("full", "lora")), ("norm", "full")]
)
def test_a_part_trains_itself_and_no_other(part, how):
    frozen = dict.fromkeys(TrainedParts.model_fields, "frozen")
    model = tiny_auto_ui.model(len(WORDS))
    sizes = {name: count["frozen"] + count["trained"] for name, count in count_parameters(model).items()}
    chosen = choose_trained_weights(model, TrainedParts(**frozen | {part: how}), Lora(rank=2))
    counts = count_parameters(chosen)
    assert {name for name, count in counts.items() if count["trained"]} == {part}
    if how == "full":
        assert counts[part]["trained"] == sizes[part]
    assert sum(count["frozen"] for count in counts.values()) == sum(sizes.values()) - (
        sizes[part] if how == "full" else 0
    )


def test_a_tied_head_is_trained_with_its_embeddings():
    with pytest.raises(RecipeError, match="embeddings and head are one matrix"):
        choose_trained_weights(tiny_auto_ui.model(64, tied=True), TrainedParts(embeddings="full"), Lora())


def refused(message: str, **model) -> None:
    with pytest.raises(UserError, match=message) as error:
        build_model(recipe(**model), WORDS)
    assert "Traceback" not in str(error.value)


def test_what_does_not_fit_is_refused_with_what_to_do(tmp_path):
    folder = t5_folder(tmp_path / "t5", tied=False)
    trained = tiny_auto_ui.model(512)
    trained.save_pretrained(tmp_path / "auto_ui")
    refused("set train.projector to full", encoder_decoder={"checkpoint": folder}, train={"projector": "lora"})
    refused("features whose size is 6, and those", encoder_decoder={"checkpoint": str(tmp_path / "auto_ui")})
    refused("cannot be loaded", encoder_decoder={"checkpoint": str(tmp_path / "nowhere")})
    small = t5_folder(tmp_path / "small", tied=False, vocab_size=512)
    with pytest.raises(CheckpointError, match=r"its tokenizer has .* and its model 100 embeddings"):
        config = T5Config(**CONFIG, vocab_size=100)
        config.save_pretrained(small)
        configuration_of(recipe(encoder_decoder={"checkpoint": small}), WORDS)
    T5Config(**CONFIG, dtype="float16").save_pretrained(folder)
    refused("float16, in which T5's activations overflow", encoder_decoder={"checkpoint": folder})
    other = {"config": {"model_type": "bart"}}
    refused("model_type must be t5, not 'bart'", encoder_decoder=other, word_tokenizer={"vocabulary": 500})
    with pytest.raises(CheckpointError, match=r"set model.encoder_decoder to it, and model.features"):
        build_model(ModelRecipe(vlm={"checkpoint": str(tmp_path / "auto_ui")}), WORDS)


@pytest.mark.parametrize(
    ("key", "value"), [("d_model", "x"), ("num_heads", 0), ("num_layers", 0), ("feed_forward_proj", "what")]
)
def test_a_value_that_no_t5_can_have_is_refused_by_its_key(key, value):
    config = tiny_auto_ui.T5 | {key: value}
    with pytest.raises(CheckpointError, match=rf"^model\.encoder_decoder\.config: .*{key}.*$"):
        build_model(recipe(encoder_decoder={"config": config}, word_tokenizer={"vocabulary": 500}), WORDS)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    tiny.model(64).save_pretrained(tmp_path)
    refused(
        "is a 'llama_vit'; choose a T5, a FLAN-T5, a FLAN-Alpaca, or", encoder_decoder={"checkpoint": str(tmp_path)}
    )


def test_a_run_that_holds_a_plain_t5_is_refused_in_one_line(tmp_path):
    t5_folder(tmp_path / "run/model", tied=True)
    WORDS.save_pretrained(tmp_path / "run/tokenizer")
    (tmp_path / "run/recipe.yaml").write_text("model: {}\n")
    with pytest.raises(CheckpointError, match="models of type 't5' are not supported"):
        load(tmp_path / "run")


def test_quantisation_is_refused():
    with pytest.raises(UserError, match=r"AutoUi cannot be quantised; remove model\.quantisation"):
        quantise(tiny_auto_ui.model(64), "nf4")


def test_the_family_says_what_it_trains_from():
    assert family_of(tiny_auto_ui.config(64)) is AUTO_UI
    assert random_recipe().starts_random
    assert not recipe(encoder_decoder={"checkpoint": "x"}).starts_random
