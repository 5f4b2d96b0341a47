"""`vlm-agent check`: mistakes in any command of a pipeline, before its first one runs."""

import json

import pytest
import yaml
from helpers import tiny

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.models import hub
from vlm_agent.simulator.demonstrations import simulate

TRAIN = ("train", "--config", "recipe.yaml", "--output", "run", "--data.shards", "shards")
CONVERT = ("convert", "--input", "data", "--splits", "data/splits.json", "--output", "shards")
EVALUATE = ("evaluate", "--checkpoint", "run", "--shards", "shards", "--output", "run/evaluation")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "data"
    simulate(folder, 3, sizes=((128, 64),), workers=1)
    return folder


@pytest.fixture(autouse=True)
def place(data, tmp_path, monkeypatch):
    """The working folder, with `data` and `recipe.yaml`, without a connection to the hub and an empty cache."""
    (tmp_path / "data").symlink_to(data)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe("unknown", "unknown")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _problems(capsys, *commands):
    """What `check` prints about commands, joined by `then`; None if it finds nothing."""
    words = [word for command in commands for word in ("then", *command)][1:]
    status = main(["check", *words])
    error = capsys.readouterr().err
    assert status == (FAILED if error else OK)
    return error or None


def test_a_right_pipeline_is_accepted_before_its_data_exist_and_writes_nothing(place, capsys):
    before = sorted(place.iterdir())
    from_base = ("train", "--config", "recipe.yaml", "--output=second", "--data.shards=shards")
    assert _problems(capsys, CONVERT, TRAIN, (*from_base, "--model.base", "run"), EVALUATE) is None
    again = (*EVALUATE, "--checkpoint", "second", "--output", "again")
    assert _problems(capsys, CONVERT, TRAIN, (*from_base, "--model.base", "run"), again) is None
    assert sorted(place.iterdir()) == before


def test_a_folder_may_have_its_full_path_in_one_command_alone(place, capsys):
    shards, run = ("--output", str(place / "shards")), ("--checkpoint", str(place / "run"))
    assert _problems(capsys, (*CONVERT, *shards), TRAIN, (*EVALUATE, *run)) is None
    mixture = ("--data.mixture.genral", "0.5")
    assert "genral" in str(_problems(capsys, (*CONVERT, *shards), (*TRAIN, *mixture)))


@pytest.mark.parametrize(
    ("command", "more", "complaint"),
    [
        (CONVERT, ("--inptu", "data"), "convert: unknown option --inptu; did you mean --input?"),
        (CONVERT, ("--input", "absent"), "convert: absent does not exist"),
        (CONVERT, ("--splits", "absent.json"), "convert: absent.json is missing; name a JSON file"),
        (CONVERT, ("--groups", "absent.json"), "convert: absent.json is missing"),
        (CONVERT, ("--source", "aitx"), "convert: source 'aitx' is unknown"),
        (CONVERT, ("--mixture", "gogle=0.5"), "convert: the mixture names gogle"),
        (CONVERT, ("--image-format", "bmp"), "convert: argument --image-format: invalid choice: 'bmp'"),
        (CONVERT, ("--shard-index", "4", "--shard-count", "4"), "convert: --shard-index must be 0 to 3 with"),
        (
            TRAIN,
            ("--training.stepz", "5"),
            "train: recipe.yaml: unknown key training.stepz; did you mean training.step",
        ),
        (TRAIN, ("--config", "absent.yaml"), "train: absent.yaml cannot be read: No such file"),
        (TRAIN, ("--training.steps", "x"), "train: recipe.yaml: training.steps: Input should be a valid integer"),
        (TRAIN, ("--data.mixture.gogle", "0.5"), "train: data.mixture names gogle; subsets are general"),
        (TRAIN, ("--training.track", "wandb"), "train: training.track: wandb is not installed"),
        (TRAIN, ("--data.shards", "shardz"), "train: shardz has no manifest.json"),
        (TRAIN, ("--data.features", "absent"), "it has an effect only with sentences: chain_of_actions"),
        (
            TRAIN,
            ("--model.vision.config.hidden_sise", "8"),
            "convnext has no key 'hidden_sise'; did you mean 'hidden_sizes'?",
        ),
        (TRAIN, ("--model.base", "no_run"), "train: no_run: no model: neither a finished run nor"),
        (EVALUATE, ("--workrs",), "evaluate: unknown option --workrs; did you mean --workers?"),
        (EVALUATE, ("--benchmark", "eval/absent.yaml"), "evaluate: eval/absent.yaml cannot be read: No such file"),
        (EVALUATE, ("--split", "tset"), "split 'tset' is unknown; choose one of train, validation, test"),
        (EVALUATE, ("--groups", "absent.json"), "evaluate: --groups absent.json does not exist"),
        (EVALUATE, ("--controls", "grey"), "evaluate: control 'grey' is not one of this agent"),
        (EVALUATE, ("--agent.batch_token", "4"), "unknown key batch_token; did you mean batch_tokens?"),
        (EVALUATE, ("--checkpoint", "ran"), "evaluate: ran: no model: neither a finished run nor"),
        (EVALUATE, ("--shards", "shardz"), "evaluate: shardz has no manifest.json"),
    ],
)
def test_a_mistake_in_one_command_is_found_before_the_first_one_runs(capsys, command, more, complaint):
    chain = [[*each, *more] if each is command else each for each in (CONVERT, TRAIN, EVALUATE)]
    problems = _problems(capsys, *chain)
    assert complaint in problems
    assert len(problems.splitlines()) == 2


def test_a_deepspeed_file_that_does_not_exist_is_found(place, capsys):
    more = ("--training.optimizer.name", "adamw", "--training.deepspeed", "deepspeed_configs/zer.json")
    assert "training.deepspeed: deepspeed_configs/zer.json cannot be read" in _problems(
        capsys, [*TRAIN, *more], CONVERT
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"zero_optimization": None}, "is not a DeepSpeed configuration"),
        ({"zero_optimization": {}}, "lacks 'stage'"),
        ({"zero_optimization": {"stage": 7}}, "stage is 1, 2 or 3"),
        ({"zero_optimization": {"stage": 0}}, "to divide nothing, remove training.deepspeed"),
        ({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": "auto"}}, "live_parameters cannot be auto"),
        ({"bf16": "auto"}, "is not a DeepSpeed configuration"),
        ({"gradient_clipping": 5}, 'sets gradient_clipping to 5, unlike the recipe; write "auto"'),
    ],
)
def test_a_deepspeed_file_with_which_training_would_end_is_found(place, capsys, change, complaint):
    content = {"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "overlap_comm": False}} | change
    (place / "zero.json").write_text(json.dumps(content))
    more = ("--training.optimizer.name", "adamw", "--training.deepspeed", "zero.json")
    problem = _problems(capsys, CONVERT, [*TRAIN, *more])
    assert "train: training.deepspeed: zero.json " in problem and complaint in problem


def test_every_command_with_a_mistake_has_a_line(capsys):
    wrong = [*CONVERT, "--inptu", "x"], [*TRAIN, "--training.stepz", "5"], [*EVALUATE, "--bf61"]
    lines = _problems(capsys, *wrong).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["convert", "train", "evaluate"]


def test_training_before_its_conversion_is_refused(capsys):
    assert "train: shards has no manifest.json" in _problems(capsys, TRAIN, CONVERT)


def test_a_checkpoint_is_looked_up_in_the_cache_that_offline_jobs_read(place, capsys):
    tiny_vlm = ("--model.vlm.checkpoint", "some/model", "--model.word_tokenizer", "null")
    complaint = _problems(capsys, CONVERT, [*TRAIN, *tiny_vlm, "--model.train", "{}"])
    assert f"model.vlm.checkpoint 'some/model': no such folder exists, and config.json is not in {place / 'cache'}" in (
        complaint
    )
    assert "hf download some/model" in complaint


def test_a_checkpoint_whose_download_is_incomplete_is_named_with_the_missing_file(place, capsys):
    folder = place / "weights"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001-of-00002.safetensors").touch()
    more = ("--model.vlm.checkpoint", "weights", "--model.word_tokenizer", "null", "--model.train", "{}")
    complaint = _problems(capsys, CONVERT, [*TRAIN, *more])
    assert "model.vlm.checkpoint 'weights' has no model-00002-of-00002.safetensors" in complaint


@pytest.mark.parametrize("path", ["/nowhere/weights", "./weights", "a/b/c"])
def test_a_folder_that_does_not_exist_is_called_a_folder(capsys, path):
    more = ("--model.vlm.checkpoint", path, "--model.word_tokenizer", "null", "--model.train", "{}")
    assert f"model.vlm.checkpoint '{path}': no such folder exists; correct" in _problems(
        capsys, CONVERT, [*TRAIN, *more]
    )


def test_features_are_checked_before_they_are_extracted(capsys):
    features = ("features", "shards", "--output", "features", "--extractor")
    assert "features: extractor 'blib2' is unknown" in _problems(capsys, CONVERT, [*features, "blib2"])
    offline = _problems(capsys, CONVERT, [*features, "dinov2"])
    assert "features: extractor dinov2: checkpoint 'facebook/dinov2-small'" in offline
    assert _problems(capsys, CONVERT, [*features, "phone_vlm_tiny"]) is None
    assert "features: shards has no manifest.json" in _problems(capsys, [*features, "phone_vlm_tiny"])


def test_features_that_a_recipe_reads_and_no_command_extracts_are_missing(capsys):
    train = ("train", "--config", "recipes/auto_ui_tiny.yaml", "--output", "run", "--data.shards", "shards")
    assert "train: data.features is missing; extract them with `vlm-agent features shards" in _problems(
        capsys, CONVERT, [*train, "--data.features", "null"]
    )


def test_every_stage_of_a_comparison_is_checked(place, capsys):
    compare = ("compare", "eval/comparisons/five_systems.yaml", "--output", "out")
    assert _problems(capsys, compare) is None
    assert "did you mean eval/comparisons/five_systems.yaml?" in _problems(
        capsys, ("compare", "eval/comparisons/five_systemz.yaml", "--output", "out")
    )
    assert "compare: absent has no manifest.json" in _problems(capsys, (*compare, "--shards", "absent"))
    (place / "two.yaml").write_text(
        "name: two\nbenchmark: eval/simulated_phone.yaml\nsizes: {simulated: 9, episodes: 1, tasks: 1}\n"
        "quick: {simulated: 9, episodes: 1, tasks: 1}\n"
        "agents: {a: {name: a, run: no_run}, b: {name: b, run: phone_vlm_tiny}}\n"
    )
    assert "compare: evaluate: no_run: no model" in _problems(capsys, ("compare", "two.yaml", "--output", "out"))


@pytest.mark.parametrize("words", [[], ["then"]])
def test_check_needs_a_command(capsys, words):
    with pytest.raises(SystemExit):
        main(["check", *words])
    assert "name a command to check" in capsys.readouterr().err
