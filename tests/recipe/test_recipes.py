"""The recipes in recipes/ are recipes, and their headers give commands that work and costs that were computed."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from helpers.published import recipe_costs
from torch.distributed.run import get_args_parser

from vlm_agent.agents import AGENTS
from vlm_agent.cli import main
from vlm_agent.cli.parser import make_parser
from vlm_agent.models.family import FAMILIES, family
from vlm_agent.recipe.model import TrainedParts
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.report import Target, dry_run

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "recipes").glob("*.yaml"))
SMALL = (
    "auto_ui_tiny",
    "llama_vit_smollm2",
    "llama_vit_tiny",
    "phone_vlm_tiny_grpo",
    "phone_vlm_tiny_lora",
    "text_tiny",
)
ELSEWHERE = ("gcloud", "hf", "make", "cp", ".venv/bin/pip")
"""Programs that are not ours."""

every_recipe = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[: next(n for n, text in enumerate(lines) if not text.startswith("#"))])


def commands(path: Path, *programs: str) -> list[list[str]]:
    """The words of each command in the header that calls one of these programs, without the program."""
    return [words[1:] for words in map(shlex.split, lines_of_commands(path)) if words[0] in programs]


def lines_of_commands(path: Path) -> list[str]:
    """What is set apart above the costs; not options alone, and not what is for Python."""
    before_costs = header(path).partition("\n# Cost")[0]
    lines = re.findall(r"^#   ([a-z.].*)$", before_costs, re.MULTILINE)
    return [line for line in lines if not line.startswith("python -c")]


def ours(path: Path, name: str) -> list[tuple[list[str], int]]:
    """(arguments, processes) of each `vlm-agent NAME …` in the header, torchrun's too."""
    plain = [(words, 1) for words in commands(path, "vlm-agent")]
    launched = []
    for words in commands(path, "torchrun"):
        options = get_args_parser().parse_args(words)
        assert options.module
        assert options.training_script == "vlm_agent.cli"
        launched.append((options.training_script_args, int(options.nproc_per_node)))
    return [(words, processes) for words, processes in plain + launched if words[0] == name]


def recipe_of(command: list[str]) -> Recipe:
    """What a `train` reads, from the repository's root; its options are known, and so are its keys."""
    options, unknown = make_parser().parse_known_args(command)
    keys = {key.removeprefix("--"): value for key, value in zip(unknown[::2], unknown[1::2], strict=True)}
    return read_recipe(ROOT / options.config, keys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`shards`, and checkpoints as the tests come to want them."""
    folder = tmp_path_factory.mktemp("recipes")
    recipe_costs.shards_of("forkme", folder)
    return folder


def test_there_are_the_papers_recipes_the_families_and_the_demos():
    assert {path.stem for path in FILES} == {*recipe_costs.MACHINES, *SMALL}


@every_recipe
def test_a_recipe_of_the_package_is_saved_and_read_unchanged(path, tmp_path):
    recipe = read_recipe(path)
    (tmp_path / "saved.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    assert read_recipe(tmp_path / "saved.yaml") == recipe


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_recipe_states_for_every_part_of_a_model_how_it_is_trained(model_type):
    without = {"auto_ui": {"vision"}}  # it reads features
    without |= {text: {"vision", "projector"} for text in ("llama", "mistral", "qwen2", "qwen3")}
    assert set(TrainedParts.model_fields) - without.get(model_type, set()) == set(family(model_type).parts)


@every_recipe
def test_every_command_of_a_header_calls_a_known_program(path):
    assert len(commands(path, "vlm-agent", "torchrun", *ELSEWHERE)) == len(lines_of_commands(path)) > 0
    for source, _ in commands(path, "cp"):
        assert (ROOT / source).is_file()


@every_recipe
def test_a_header_has_the_command_that_trains_this_recipe_and_its_cost(path):
    training = [words for words, _ in ours(path, "train") if "--dry-run" not in words]
    assert training[0][:3] == ["train", "--config", f"recipes/{path.name}"]
    assert re.search(r"^# Cost\b", header(path), re.MULTILINE)


@every_recipe
def test_every_training_command_of_a_header_has_the_rows_per_step_of_its_recipe(path):
    rows = set()
    for command, processes in ours(path, "train"):
        recipe = recipe_of(command)
        if recipe.training.deepspeed is not None:
            assert (ROOT / recipe.training.deepspeed).is_file()
        if "--dry-run" not in command:
            rows.add(processes * recipe.training.accumulation)
    assert len(rows) == 1


@every_recipe
def test_every_other_command_of_ours_has_options_that_exist_and_the_recipes_own_folders(path):
    recipe = read_recipe(path)
    for name in ("convert", "convert-checkpoint", "evaluate", "merge"):
        for command, _ in ours(path, name):
            options, keys = make_parser().parse_known_args(command)
            agent = AGENTS["vlm" if recipe.model.encoder_decoder is None else "auto_ui"]
            assert {key.removeprefix("--agent.") for key in keys[::2]} <= set(agent.model_fields)
            if name == "convert":
                assert str(options.output) == recipe.data.shards
            if name == "convert-checkpoint":
                assert str(options.output) == recipe.model.vlm.checkpoint
            if name == "evaluate" and not options.online:
                assert (str(options.checkpoint), str(options.shards)) == (recipe.output, recipe.data.shards)
            if name == "merge":
                assert str(options.run_folder) == recipe.output


@pytest.fixture(scope="module")
def dry_runs_of(folder):
    """The dry runs of a recipe by name, made once."""
    return cache(lambda name: recipe_costs.dry_runs_of(name, folder))


@pytest.mark.parametrize("name", recipe_costs.MACHINES)
def test_the_cost_in_a_header_equals_the_dry_run_on_its_machine(name, dry_runs_of):
    path = ROOT / "recipes" / f"{name}.yaml"
    (command,) = [words for words, _ in ours(path, "train") if "--dry-run" in words]
    options, _ = make_parser().parse_known_args(command)
    assert (options.gpu, options.gpus) == recipe_costs.MACHINES[name][0]
    assert recipe_costs.cost_lines(name, dry_runs_of(name)).strip() in header(path)


@every_recipe
def test_no_recipe_names_a_folder_outside_the_repository(path):
    checkpoints = [source.checkpoint for source in read_recipe(path).model.sources.values()]
    assert not [name for name in checkpoints if name is not None and name.startswith(("/", "..", "~"))]


IN_TOOL_CALLS = ("qwen2_5_vl_7b_lora_androidcontrol",)
WITHOUT_THOUGHTS = [name for name in recipe_costs.MACHINES if name not in recipe_costs.ON_AITZ]


@pytest.mark.parametrize(
    "name", [name for name in WITHOUT_THOUGHTS if not name.startswith("auto_ui") and name not in recipe_costs.ON_HTML]
)
def test_the_head_is_a_five_hundredth_of_a_step_because_few_tokens_have_a_label(name, dry_runs_of):
    """A tool call has several times the tokens of a line, so with those it is a hundredth."""
    dry = dry_runs_of(name)[0]
    weights = max(dry.parameters["head"]["frozen"], dry.parameters["embeddings"]["frozen"])  # one of both where tied
    forward_and_backward = 4 * weights * dry.step.supervised
    assert 0 < forward_and_backward < dry.step.work.model / (100 if name in IN_TOOL_CALLS else 500)


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    """A tenth of the episodes, with elements: the numbers of parameters do not depend on them."""
    return recipe_costs.write_html(tmp_path_factory.mktemp("few"), recipe_costs.MADE * recipe_costs.TRAIN / 10)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "phone_vlm_tiny_grpo"])
def test_a_recipe_for_a_laptop_can_be_dry_run_too(name, folder, few):
    path = ROOT / "recipes" / f"{name}.yaml"
    overrides = {"data.shards": str(few)}
    if name == "llama_vit_smollm2":
        overrides |= recipe_costs.stand_ins(read_recipe(path), folder) | {"model.language_model.gguf_file": "null"}
    dry = dry_run(ShardDataModule(read_recipe(path, overrides)), Target(find_gpu("4090"), 1, 0.4))
    trained = sum(part["trained"] for part in dry.parameters.values()) / 1e6
    if read_recipe(path).model.word_tokenizer is None:  # else they hang on the words of its data
        assert f"{trained:.1f} M" in header(path)


def test_the_dry_run_of_a_header_works_as_it_is_typed(folder, capsys):
    recipe = read_recipe(ROOT / "recipes/forkme.yaml")
    changed = recipe_costs.stand_ins(recipe, folder) | {"data.shards": str(folder / "shards")}
    changed |= {"training.validation": "null"}  # the shards have training episodes alone
    keys = [word for key, value in changed.items() for word in (f"--{key}", value)]
    config = str(ROOT / "recipes/forkme.yaml")
    assert main(["train", "--config", config, "--dry-run", "--gpu", "4090", "--gpus", "1", *keys]) == 0
    printed = capsys.readouterr().out
    for words in ("Parameters, M", "29 of 36 layers (estimate 21.2 of 24.0 GB)", "Memory a GPU, GB (4090: 24)"):
        assert words in printed


def test_the_papers_recipes_freeze_what_the_paper_freezes():
    trained = {
        "llama_vit_llama2_7b": {"projector": "full", "language_model": "lora"},
        "qwen_vl_7b_lora": {"language_model": "lora"},
    }
    for name, parts in trained.items():
        recipe = read_recipe(ROOT / "recipes" / f"{name}.yaml")
        assert {part: kind for part, kind in recipe.model.train.model_dump().items() if kind != "frozen"} == parts
        assert recipe.data.mixture == {"google_apps": 0.1}
        assert recipe.data.sentences == "trajectory"
