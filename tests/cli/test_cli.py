"""The console command: options, messages and exit status."""

import json
import subprocess
import sys
import warnings

import pytest
from PIL import Image

from vlm_agent.action_languages import LANGUAGES
from vlm_agent.cli import FAILED, INTERRUPTED, OK, QUARANTINED, USAGE, main
from vlm_agent.cli.parser import GROUPS

COMMANDS = ("simulate", "convert", "inspect", "train", "evaluate", "score", "demo")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated") / "aitw"
    assert main(["simulate", "--output", str(folder), "--episodes", "6", "--seed", "3", "--workers", "1"]) == OK
    return folder


@pytest.fixture(scope="module")
def shards(simulated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted") / "shards"
    assert main(["convert", "--input", str(simulated), "--output", str(folder)]) == OK
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    assert f"vlm-agent {command}" in capsys.readouterr().out


def test_without_a_command_the_help_lists_all_commands_by_group(capsys):
    with pytest.raises(SystemExit) as leaving:
        main([])
    assert leaving.value.code == USAGE
    lines = capsys.readouterr().err.splitlines()
    for group, names in GROUPS.items():
        first = lines.index(f"{group}:") + 1
        listed = [line.split()[0] for line in lines[first : first + len(names)]]
        assert listed == [name.replace("_", "-") for name in names]


def test_the_help_of_train_lists_every_recipe_key_without_pytorch():
    code = "import sys; from vlm_agent.cli import main\ntry: main(['train', '--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for key in ("training", "optimizer.learning_rate", "steps", "vlm.checkpoint", "lora.rank", "mixture", "output"):
        assert key in done
    assert f"name ({' | '.join(sorted(LANGUAGES))})" in " ".join(done.split())
    assert not {"torch", "transformers"} & set(done.splitlines()[-1].split())


def test_no_command_shows_warnings_of_libraries_that_need_no_action(monkeypatch, recwarn):
    warning = "`is_gradient_checkpointing` is deprecated"
    monkeypatch.setattr("vlm_agent.cli.recipes.run", lambda _: warnings.warn(warning, FutureWarning, 2) or OK)
    assert main(["recipes"]) == OK
    assert not recwarn.list


def test_help_imports_no_heavy_module():
    code = "import sys, vlm_agent.cli; vlm_agent.cli.parser.make_parser(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "pyarrow", "numpy", "PIL", "rich"} & set(loaded)


def test_a_program_starts_without_large_libraries_that_it_does_not_need_and_frequent_garbage_collection():
    code = """
import gc, importlib.util, sys
from vlm_agent.files.imports import start_program
start_program()
import vlm_agent.models.build, vlm_agent.datasets.shards.schema
large = {"bitsandbytes", "pandas", "scipy"}
print(*sorted((large | {"peft", "pyarrow"}) & set(sys.modules)), gc.get_threshold()[0] > 1000)
exec("import importlib.util; print(importlib.util.find_spec('scipy'))", {"__name__": "transformers.utils"})
exec("import bitsandbytes, pandas, scipy", {"__name__": "agent_of_a_user"})
print(large <= set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "peft pyarrow True\nNone\nTrue\n"


def test_status_checks_of_the_doctor_and_evaluations_without_a_model_import_no_pytorch(tmp_path):
    (tmp_path / "recipe.yaml").write_text("")
    code = f"""
import sys
from vlm_agent.cli import main
import vlm_agent.agents.loading, vlm_agent.cli.doctor.checks, vlm_agent.evaluation.comparison.stages
import vlm_agent.evaluation.offline.run, vlm_agent.evaluation.online
main(["status", {str(tmp_path)!r}])
print(*{{"torch", "transformers"}} & set(sys.modules), "are imported")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "are imported"


def test_simulated_files_come_with_splits_and_groups(simulated):
    assert {"train", "test"} <= set(json.loads((simulated / "splits.json").read_text()))
    assert "memory_goals" in json.loads((simulated / "groups.json").read_text())


def test_inspect_prints_counts_and_draws_a_sheet(shards, tmp_path, capsys):
    sheet = tmp_path / "new" / "sheet.png"
    assert main(["inspect", str(shards), "--draw", "first", "--output", str(sheet)]) == OK
    assert "Action mix" in capsys.readouterr().out
    with Image.open(sheet) as image:
        assert image.format == "PNG"
        assert image.width > 300


def test_inspect_draws_the_requested_episode(simulated, shards, tmp_path, capsys):
    episode = json.loads((simulated / "splits.json").read_text())["test"][0]
    assert main(["inspect", str(shards), "--draw", episode, "--output", str(tmp_path / "sheet.png")]) == OK
    assert f"Drew episode {episode}" in capsys.readouterr().out


def test_inspect_refuses_an_unknown_episode(shards, tmp_path, capsys):
    assert main(["inspect", str(shards), "--draw", "no-such-id", "--output", str(tmp_path / "sheet.png")]) == FAILED
    assert "no episode no-such-id among its 6" in capsys.readouterr().err


def test_a_conversion_with_bad_records_has_a_status_of_its_own_and_keeps_the_good_ones(simulated, tmp_path, capsys):
    source = next(path for path in sorted(simulated.rglob("*-of-*")) if path.is_file())
    damaged = tmp_path / source.name
    content = bytearray(source.read_bytes())
    damaged.write_bytes(content[: len(content) - 40])
    good = next(path for path in sorted(simulated.rglob("*-of-*")) if path.is_file() and path.name != source.name)
    status = main(["convert", "--input", str(damaged), str(good), "--output", str(tmp_path / "shards")])
    assert status == QUARANTINED == 3
    assert str(damaged) in capsys.readouterr().out
    assert json.loads((tmp_path / "shards" / "manifest.json").read_text())["episodes_written"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "{tmp}/none"], "has no manifest.json"),
        (["convert", "--input", "{tmp}/none", "--output", "{tmp}/out"], "none does not exist"),
        (["convert", "--source", "aitv", "--input", "{tmp}", "--output", "{tmp}/out"], "choose one of aitw"),
        (["train", "--config", "{tmp}/none.yaml"], "none.yaml"),
        (["evaluate", "--checkpoint", "{tmp}", "--shards", "{tmp}", "--output", "{tmp}/out"], "manifest.json"),
        (
            ["evaluate", "--checkpoint", "r", "--shards", "s", "--output", "o", "--groups", "{tmp}/none.json"],
            "none.json is missing; name a JSON file that maps",
        ),
        (["demo", "--output", "{tmp}"], "is not the output of a demo"),
    ],
)
def test_a_user_error_is_one_message_and_status_1(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == FAILED
    message = capsys.readouterr().err
    assert message.startswith(f"vlm-agent {arguments[0]}: ")
    assert words in message
    assert "Traceback" not in message


def _refusal(arguments, capsys) -> str:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == USAGE == 2  # as of any program that uses argparse
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "--imput", "x", "--output", "y"], "unknown option --imput; did you mean --input?"),
        (["convert", "--input", "x", "--output", "y", "--spits=z"], "did you mean --splits?"),
        (["inspect", "x", "y"], "unexpected argument 'y'"),
        (["--vresion"], "did you mean --version?"),
        (["trian"], "invalid choice: 'trian'"),
        (["simulate", "--output", "x", "--episodes", "0"], "'0': must be a whole number, 1 or greater"),
        (["evaluate", "--output", "x", "--seed", "-1"], "'-1': must be a whole number, 0 or greater"),
        (
            ["evaluate", "--online", "--agent", "x", "--output", "y", "--task-set", "browser", "--scale", "2"],
            "--scale has no effect on the task set browser; remove it",
        ),
        (["simulate", "--output", "x", "--episodes", "1", "--size", "448"], "height x width"),
        (["inspect", "x", "--draw", "first", "--output", "sheet.jpg"], "must end in .png"),
        (["inspect", "x", "--output", "sheet.png"], "needs the episode to draw"),
        (["train", "--config", "x", "--training.steps"], "--training.steps needs a value"),
        (["train", "--config", "x", "--training.steps", "--seed", "1"], "--training.steps needs a value"),
        (["train", "--config", "x", "stray"], "'stray' is not a key; write --key.subkey value"),
    ],
)
def test_invalid_arguments_are_refused(arguments, words, capsys):
    assert words in _refusal(arguments, capsys)


RECIPE = """
output: runs/x
model: {language_model: {checkpoint: llama}, vision: {checkpoint: vit}}
data: {shards: shards}
training: {steps: 5}
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_train_accepts_any_key_of_the_recipe_in_both_spellings(recipe, monkeypatch):
    trained = []
    monkeypatch.setattr("vlm_agent.training.train.train", lambda recipe, console, data_of: trained.append(recipe))
    overrides = ["--training.steps", "7", "--data.limit=12", "--data.mixture.google_apps", "0.1", "--output=a=b"]
    assert main(["train", "--config", str(recipe), *overrides]) == OK
    (got,) = trained
    assert got.training.steps == 7
    assert got.data.limit == 12
    assert got.data.mixture == {"google_apps": 0.1}
    assert got.output == "a=b"


def test_an_unknown_key_names_the_nearest_one(recipe, capsys):
    assert main(["train", "--config", str(recipe), "--training.stpes", "7"]) == FAILED
    assert "did you mean training.steps?" in capsys.readouterr().err


def test_evaluate_passes_its_options_on(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(
        "vlm_agent.evaluation.offline.run.evaluate", lambda *args, **options: calls.append((args, options))
    )
    groups = tmp_path / "groups.json"
    groups.write_text('{"memory_goals": ["1", "2"]}')
    arguments = ["--split", "validation", "--limit", "3", "--groups", str(groups)]
    arguments += ["--controls", "none", "--agent.bf16", "true"]
    assert main(["evaluate", "--checkpoint", "run", "--shards", "s", "--output", "o", *arguments]) == OK
    ((source, benchmark, *_), options) = calls[0]
    assert (benchmark.split, benchmark.limit) == ("validation", 3)
    assert benchmark.episode_groups() == {"memory_goals": ["1", "2"]}
    assert (source.display_name, source.bf16) == ("run", True)
    assert options["controls"] is False


def test_groups_that_are_not_json_are_an_error_that_names_the_file(tmp_path, capsys):
    groups = tmp_path / "groups.json"
    groups.write_text("{")
    arguments = ["evaluate", "--checkpoint", "r", "--shards", "s", "--output", "o", "--groups", str(groups)]
    assert main(arguments) == FAILED
    assert f"{groups} is damaged" in capsys.readouterr().err


BUGS = {
    "a strict zip": "list(zip([1], [], strict=True))",
    "an unpacking": "first, second = 1, 2, 3",
    "a broadcast": "import numpy; numpy.zeros(2) + numpy.zeros(3)",
    "a number": "int('x')",
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_inside_the_package_keeps_its_traceback(bug, tmp_path):
    """All raise ValueError from C, so that the last Python frame is one of a module of the package."""
    (tmp_path / "recipe.yaml").touch()  # the folder of a run
    program = f"""
import sys
from vlm_agent.cli import main
from vlm_agent.training.run_folder import status

exec(compile("def read_status(run):\\n    " + {bug!r}, status.__file__, "exec"), vars(status))
sys.argv[1:] = ["status", {str(tmp_path)!r}]
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback (most recent call last):")
    last_frame, error = ended.stderr.rpartition("  File ")[2].splitlines()[0], ended.stderr.splitlines()[-1]
    assert "run_folder/status.py" in last_frame
    assert error.startswith("ValueError: ")
    assert "vlm-agent status:" not in ended.stderr


def test_an_error_inside_a_library_keeps_its_traceback(shards, monkeypatch):
    monkeypatch.setattr("vlm_agent.datasets.statistics.summary.summarise", lambda dataset: json.loads("{"))
    with pytest.raises(ValueError, match="Expecting property name"):
        main(["inspect", str(shards)])


def test_ctrl_c_exits_with_130(shards, monkeypatch, capsys):
    def interrupt(dataset):
        raise KeyboardInterrupt

    monkeypatch.setattr("vlm_agent.datasets.statistics.summary.summarise", interrupt)
    assert main(["inspect", str(shards)]) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
