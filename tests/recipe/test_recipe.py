"""A recipe states exactly what runs; the error for a mistyped one names the correction."""

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen

from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import SENTENCES
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.recipe.yaml_file import shipped_files
from vlm_agent.training.data.sentence_kinds import SENTENCE_KINDS
from vlm_agent.training.loop.optimizers import warmup_steps

NEXT_TO = {
    "trainin": "training",
    "seeds": "seed",
    "model.train.vison": "model.train.vision",
    "model.lora.ranks": "model.lora.rank",
    "model.vision.chekpoint": "model.vision.checkpoint",
    "model.language_model.gguf": "model.language_model.gguf_file",
    "data.shard": "data.shards",
    "action_language.bin": "action_language.bins",
    "training.batchsize": "training.batch_size",
    "training.optimizer.lr": "training.optimizer.learning_rate",
    "training.optimizer.muon_lerning_rate": "training.optimizer.muon_learning_rate",
}


@pytest.fixture
def content(tmp_path) -> dict:
    return tiny.recipe(tmp_path / "shards", tmp_path / "run")


@pytest.fixture
def path(tmp_path, content):
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def problem(path, **overrides) -> str:
    """The error message of a recipe that cannot be run."""
    with pytest.raises(RecipeError) as error:
        read_recipe(path, {key.replace("__", "."): value for key, value in overrides.items()})
    return str(error.value)


def test_a_recipe_is_read(path, content):
    recipe = read_recipe(path)
    assert recipe.model.visual_grid == tiny.GRID
    assert recipe.training.steps == 3
    assert recipe.training.optimizer.name == "muon"
    assert recipe.model.starts_random


@pytest.mark.parametrize("key", NEXT_TO)
def test_an_unknown_key_is_refused_with_the_nearest_right_one(path, key):
    message = problem(path, **{key: "1"})
    assert f"{path}: unknown key {key}; did you mean {NEXT_TO[key]}?" in message


def test_all_problems_of_a_recipe_are_reported_at_once(path):
    message = problem(path, seeds="1", training__batch_size="none_of_it", training__stepz="3")
    assert len(message.splitlines()) == 3
    assert all(line.startswith(f"{path}: ") for line in message.splitlines())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training.batch_size", "four"),
        ("training.batch_size", "1.5"),
        ("training.batch_size", "0"),
        ("training.steps", "-1"),
        ("training.epochs", "[1]"),
        ("training.epochs", "1e300"),
        ("training.schedule", "sometimes"),
        ("training.optimizer.learning_rate", "fast"),
        ("training.optimizer.learning_rate", "0"),
        ("training.optimizer.learning_rate", ".inf"),
        ("training.max_grad_norm", "{a: 1}"),
        ("training.warmup_steps", "1.5"),
        ("training.warmup_steps", "-0.1"),
        ("training.warmup_steps", "some"),
        ("training.warmup_steps", ".inf"),
        ("training.warmup_steps", ".nan"),
        ("action_language.bins", "1"),
        ("action_language.name", "morse"),
        ("model.screen_size", "[896]"),
        ("model.screen_size", "[0, 448]"),
        ("model.image_std", "[0.5, 0, 0.5]"),
        ("model.visual_norm", ".nan"),
        ("model.element_loss", "-1"),
        ("model.train.vision", "some"),
        ("model.lora.rank", "0"),
        ("model.dtype", "float16"),
        ("data.sentences", "words"),
        ("data.limit", "0"),
        ("data.mixture.google_apps", "1.5"),
        ("data.workers", "-1"),
        ("seed", "-1"),
        ("seed", "4294967296"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(path, key, value):
    assert f"{path}: {key}" in problem(path, **{key: value})


@pytest.mark.parametrize("key", ["training.bf16", "training.gradient_checkpointing"])
def test_a_wrong_value_of_a_key_with_auto_is_one_line_that_names_the_key(path, key):
    assert problem(path, **{key: "5"}) == f"{path}: {key}: Input should be True, False or 'auto'"


@pytest.mark.parametrize(("value", "steps"), [("30", 30), ("0", 0), ("0.05", 10), ("0.001", 1)])
def test_warm_up_is_a_number_of_steps_or_a_fraction_of_all(path, value, steps):
    recipe = read_recipe(path, {"training.warmup_steps": value})
    assert warmup_steps(recipe.training, 200) == steps
    assert f"warmup_steps: {value}\n" in recipe.to_yaml()


def test_an_unknown_kind_of_sentences_is_refused_with_the_known_ones(path):
    assert "'words' is unknown; choose one of" in problem(path, **{"data.sentences": "words"})
    assert set(SENTENCES) == set(SENTENCE_KINDS)


def test_only_a_language_with_names_names_swipe_targets(path):
    key = "action_language.name_swipe_targets"
    assert "needs a language with names: name: named" in problem(path, **{key: "true"})
    named = {"action_language.name": "named", key: "true"}
    assert read_recipe(path, named).action_language.build() == NamedLanguage(tiny.BINS, name_swipe_targets=True)


@pytest.mark.parametrize("key", ["output", "model", "data", "training"])
def test_a_key_without_a_default_is_required(path, content, key):
    del content[key]
    path.write_text(yaml.safe_dump(content))
    assert f"{path}: {key}: Field required" in problem(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.epochs": "1", "training.steps": "9"}, "epochs and steps exclude each other; remove one of them"),
        ({"training.steps": "null"}, "the length is missing; set epochs or steps"),
        ({"model.language_model": "null", "model.vision": "null"}, "set one of base, vlm, encoder_decoder or language"),
        ({"model.base": "x", "model.vlm.checkpoint": "x"}, "set one of base, vlm, encoder_decoder or language_model"),
        ({"model.min_pixels": "3136"}, "remove min_pixels; it has no effect with language_model"),
        ({"training.batch_tokens": "9", "training.batch_size": "1"}, "batch_size and batch_tokens exclude each other"),
        ({"training.batch_size": "null", "training.batch_tokens": "100", "data.max_tokens": "101"}, "must fit"),
        ({"data.sentences": "elements", "data.max_tokens": "101"}, "give training.batch_size"),
        ({"model.vision": "null"}, "no effect with language_model without vision"),
        ({"model.train.projector": "frozen"}, "train.projector must be full"),
        ({"model.word_tokenizer": "null"}, "needs word_tokenizer"),
        ({"model.language_model": "{checkpoint: x}"}, "excludes word_tokenizer"),
        ({"model.vision": "{checkpoint: x, config: {}}"}, "set checkpoint or config, not both"),
        ({"model.vision": "{}"}, "set checkpoint or config, not both"),
        ({"model.vision": "{config: {hidden_size: 3}}"}, "model_type"),
        ({"model.vision.gguf_file": "x"}, "gguf_file"),
        ({"model.vision": "{checkpoint: x, gguf_file: y}"}, "only a language_model is read from GGUF"),
        ({"model.dtype": "bfloat16"}, "bf16"),
        ({"training.deepspeed": "deepspeed_configs/zero2.json"}, "muon needs them whole"),
        ({"model.lora.dropout": "1"}, "model.lora.dropout: Input should be less than 1"),
    ],
)
def test_incompatible_options_are_refused(path, overrides, message):
    assert message in problem(path, **overrides)


def test_overrides_are_dotted_and_typed(path):
    overrides = {
        "training.steps": "10",
        "training.optimizer.learning_rate": "1e-4",
        "model.lora.dropout": "0.25",
        "model.screen_size": "[128, 64]",
        "data.mixture.google_apps": "0.1",
        "training.bf16": "true",
        "output": "elsewhere",
        "data.limit": "null",
    }
    recipe = read_recipe(path, overrides)
    assert (recipe.training.steps, recipe.training.optimizer.learning_rate) == (10, 1e-4)
    assert (recipe.model.lora.dropout, recipe.model.screen_size) == (0.25, (128, 64))
    assert (recipe.data.mixture, recipe.data.limit) == ({"google_apps": 0.1}, None)
    assert (recipe.training.bf16, recipe.output) == (True, "elsewhere")


@pytest.mark.parametrize(
    ("overrides", "absent"),
    [
        ({"training.epochs": "3"}, "training.steps"),
        ({"training.batch_tokens": "4096"}, "training.batch_size"),
        ({"training.batch_tokens": "4096", "training.epochs": "0.5"}, "training.steps"),
        ({"model.vision.checkpoint": "x"}, "model.vision.config"),
        ({"model.base": "runs/x"}, "model.vision"),
        ({"model.vlm.checkpoint": "x", "model.word_tokenizer": "null"}, "model.vision"),
    ],
)
def test_an_override_removes_the_keys_of_the_file_that_it_excludes(path, overrides, absent):
    recipe = read_recipe(path, overrides)
    value = recipe.model_dump()
    for part in absent.split("."):
        value = value.get(part)
    assert value is None
    assert all(_at(recipe, key) is not None for key in overrides if overrides[key] != "null")


def _at(recipe, key):
    for part in key.split("."):
        recipe = getattr(recipe, part)
    return recipe


def test_an_override_turns_on_a_section_that_a_saved_recipe_has_as_null(path, tmp_path):
    (tmp_path / "saved.yaml").write_text(read_recipe(path).to_yaml())
    recipe = read_recipe(tmp_path / "saved.yaml", {"training.validation.steps": "5"})
    assert (recipe.training.validation.steps, recipe.training.validation.episodes) == (5, 64)


def test_an_override_by_null_removes_nothing_else(path):
    assert read_recipe(path, {"training.epochs": "null"}) == read_recipe(path)


@pytest.mark.parametrize(
    "shipped",
    [path for path in shipped_files() if path.parent.name == "recipes" and "reinforcement:" not in path.read_text()],
    ids=str,
)
def test_steps_and_epochs_of_every_shipped_recipe_can_be_overridden(shipped):
    assert read_recipe(shipped, {"training.steps": "100"}).training.epochs is None
    assert read_recipe(shipped, {"training.epochs": "2"}).training.steps is None


@pytest.mark.parametrize(("written", "number"), [("1e-4", 1e-4), ("2E3", 2000.0), ("1.5e-05", 1.5e-5), ("1", 1.0)])
def test_numbers_are_accepted_in_all_common_notations(path, content, written, number):
    text = yaml.safe_dump(content).replace("learning_rate: 0.002", f"learning_rate: {written}")
    path.write_text(text)
    assert read_recipe(path).training.optimizer.learning_rate == number


def test_an_override_cannot_enter_a_value(path):
    assert "--output.sub: output is a value, not a section" in problem(path, output__sub="1")


@pytest.mark.parametrize(("text", "value"), [("runs/a #b", "runs/a #b"), ("'7'", "7"), ("'a' # b", "a")])
def test_an_override_with_a_number_sign_is_not_cut(path, text, value):
    assert read_recipe(path, {"output": text}).output == value


def test_an_override_that_is_not_yaml_is_refused_by_name(path):
    assert "--output" in problem(path, output="[")


def test_a_saved_recipe_has_every_key_and_reads_as_the_same_recipe(path, tmp_path):
    recipe = read_recipe(path, {"training.optimizer.learning_rate": "1e-5", "output": "läufe/1"})
    saved = tmp_path / "saved.yaml"
    saved.write_text(recipe.to_yaml(), encoding="utf-8")
    assert read_recipe(saved) == recipe
    assert read_recipe(saved).to_yaml() == recipe.to_yaml()
    content = yaml.safe_load(recipe.to_yaml())
    assert content["training"].keys() == type(recipe.training).model_fields.keys()
    assert content["model"]["lora"].keys() == type(recipe.model.lora).model_fields.keys()


def test_a_recipe_on_a_finished_run_is_saved_without_the_settings_of_that_run(path, content, tmp_path):
    content["model"] = {"base": "runs/x", "train": {"projector": "frozen"}}
    path.write_text(yaml.safe_dump(content))
    recipe = read_recipe(path)
    assert not recipe.model.starts_random
    saved = tmp_path / "saved.yaml"
    saved.write_text(recipe.to_yaml())
    assert read_recipe(saved) == recipe


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "5", "a: b: c"])
def test_the_error_for_a_file_that_is_not_a_recipe_names_the_file(path, text):
    path.write_text(text)
    assert str(path) in problem(path)


def test_a_key_that_occurs_twice_is_refused_with_its_place(path, content):
    path.write_text(f"{yaml.safe_dump(content, sort_keys=False)}training:\n  steps: 7\n")
    assert problem(path).endswith(
        f"line {len(path.read_text().splitlines()) - 1}, column 1: the key training occurs twice"
    )


def test_the_error_for_an_unreadable_recipe_names_the_reason(tmp_path, path):
    assert "No such file" in problem(tmp_path / "none.yaml")
    assert "directory" in problem(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    assert "not valid YAML" in problem(path)


def test_a_recipe_cannot_be_changed_after_it_was_read(path):
    with pytest.raises(ValueError, match="frozen"):
        read_recipe(path).seed = 3


def test_defaults_are_the_papers_values_where_it_states_them():
    recipe = Recipe(
        output="x",
        model={"language_model": {"checkpoint": "a"}, "vision": {"checkpoint": "b"}},
        data={"shards": "s"},
        training={"steps": 1},
    )
    train = recipe.model.train
    assert (train.vision, train.embeddings, train.projector, train.language_model) == (
        "frozen",
        "frozen",
        "full",
        "lora",
    )
    assert recipe.action_language.bins == 100


def test_a_recipe_on_a_finished_run_that_describes_another_model_is_refused(path, content):
    content["model"] = {"base": "runs/x", "visual_grid": [4, 2], "element_loss": 0.5}
    path.write_text(yaml.safe_dump(content))
    assert "base includes the whole model; remove element_loss, visual_grid" in problem(path)


@pytest.fixture
def whole(path, content) -> dict:
    """The recipe of a whole vision-language model."""
    content["model"] = {"vlm": {"checkpoint": "x"}, "min_pixels": 3136, "max_pixels": 501760}
    path.write_text(yaml.safe_dump(content))
    return content


def test_a_recipe_of_a_whole_model_adapts_its_language_model_alone_and_is_saved_as_it_was(path, whole, tmp_path):
    recipe = read_recipe(path, {"training.batch_size": "null", "training.batch_tokens": "4096"})
    trained = {part: kind for part, kind in recipe.model.train.model_dump().items() if kind != "frozen"}
    assert trained == {"language_model": "lora"}
    assert (recipe.model.min_pixels, recipe.model.max_pixels) == (3136, 501760)
    assert not recipe.model.starts_random
    saved = tmp_path / "saved.yaml"
    saved.write_text(recipe.to_yaml())
    assert read_recipe(saved) == recipe
    assert "screen_size" not in yaml.safe_load(recipe.to_yaml())["model"]


def test_a_recipe_of_a_whole_model_may_train_its_projector(path, whole):
    assert read_recipe(path, {"model.train.projector": "full"}).model.train.projector == "full"
    assert read_recipe(path, {"model.train.norm": "full"}).model.train.projector == "frozen"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.screen_size": "[896, 448]"}, "remove screen_size; it has no effect with vlm"),
        ({"model.visual_norm": "0.7", "model.element_loss": "0.5"}, "remove element_loss, visual_norm"),
        ({"model.vision": "{checkpoint: x}"}, "set one of base, vlm, encoder_decoder or language_model"),
        ({"model.min_pixels": "600000"}, "min_pixels is greater than max_pixels"),
        ({"model.vlm": "{config: {model_type: qwen2_vl}}"}, "needs word_tokenizer"),
        ({"model.word_tokenizer": "{vocabulary: 9}"}, "excludes word_tokenizer"),
        ({"model.vlm": "{config: {hidden_size: 3}}"}, "model_type"),
        ({"model.vlm": "{config: {model_type: 5}}"}, "config needs a model_type, such as llama or vit"),
        ({"model.vlm.chekpoint": "x"}, "did you mean model.vlm.checkpoint?"),
        ({"model.max_pixel": "9"}, "did you mean model.max_pixels?"),
    ],
)
def test_keys_that_do_not_apply_to_a_whole_model_are_refused(path, whole, overrides, message):
    assert message in problem(path, **overrides)


@pytest.mark.parametrize("name", tiny_qwen.FAMILIES)
def test_a_whole_model_with_random_weights_is_saved_with_its_configuration(path, content, name, tmp_path):
    content["model"] = tiny_qwen.recipe(name).model_dump(mode="json")
    path.write_text(yaml.safe_dump(content))
    recipe = read_recipe(path)
    assert recipe.model == tiny_qwen.recipe(name)
    assert recipe.model.starts_random
    saved = tmp_path / "saved.yaml"
    saved.write_text(recipe.to_yaml())
    assert read_recipe(saved) == recipe


ENCODER_DECODER = {"encoder_decoder": {"checkpoint": "flan"}, "features": {"extractor": "blip2"}}


@pytest.fixture
def encoder_decoder(path, content) -> None:
    content["model"] = dict(ENCODER_DECODER)
    path.write_text(yaml.safe_dump(content))


def test_an_encoder_decoder_trains_in_full_and_is_saved_with_its_features(path, encoder_decoder, tmp_path):
    recipe = read_recipe(path)
    trained = recipe.model.train.model_dump()
    assert trained == dict.fromkeys(trained, "full") | {"vision": "frozen"}
    assert recipe.model.features.form == "pooled"
    saved = tmp_path / "saved.yaml"
    saved.write_text(recipe.to_yaml())
    assert read_recipe(saved) == recipe
    assert read_recipe(path, {"model.train.language_model": "lora"}).model.train.projector == "full"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.features": "null"}, "set features"),
        ({"model.train.vision": "full"}, "train.vision must be frozen with encoder_decoder"),
        ({"model.quantisation": "nf4", "model.train.language_model": "lora"}, "remove quantisation"),
        ({"model.word_embeddings": "phone_vlm_tiny"}, "word_embeddings is for encoder_decoder.config"),
        ({"model.encoder_decoder": "{config: {model_type: t5}}"}, "needs word_tokenizer"),
        ({"model.features.form": "patch"}, "form"),
        ({"model.screen_size": "[896, 448]"}, "remove screen_size; it has no effect with encoder_decoder"),
    ],
)
def test_keys_that_do_not_apply_to_an_encoder_decoder_are_refused(path, encoder_decoder, overrides, message):
    assert message in problem(path, **overrides)
