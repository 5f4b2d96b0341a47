"""The worked examples of CONTRIBUTING.md run as they are printed, as packages outside the repository."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen
from helpers.programs.plugins import install

from vlm_agent.action_languages import LANGUAGES, language_settings
from vlm_agent.agents import AGENTS
from vlm_agent.cli import OK, QUARANTINED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.devices import DEVICES
from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.models.family import FAMILIES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = {path: code for path, code in re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)}
ENTRY_POINT = re.compile(
    r"^Entry point of the group `(?P<group>\S+)`: `(?P<name>\w+) = \"(?P<value>(?P<module>\w+):\w+)\"`", re.MULTILINE
)
REGISTRATION = re.compile(
    r"In this repository it is\s`(?P<path>\S+)`, in `(?P<registry>[A-Z]+)` \(`(?P<file>\S+)`\):\s"
    r"(?:`(?P<statement>from [^`]+)` and\s)?`(?P<line>[^`]+)`"
)
ENTRY_POINTS = {found["module"]: found for found in ENTRY_POINT.finditer(PAGE)}
REGISTRATIONS = {found["registry"]: found for found in REGISTRATION.finditer(PAGE)}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Installs the example of this name as a package outside the repository, with the entry point of the page."""

    def add(name: str) -> ModuleType:
        point = ENTRY_POINTS[name]
        points = {point["group"]: {point["name"]: point["value"]}}
        install(tmp_path / f"site_{name}", monkeypatch, points, f"package_of_{name}", **{name: BLOCKS[f"{name}.py"]})
        return import_module(name)

    return add


def write(folder: Path, path: str) -> str:
    """The YAML example at a path, as a file in `folder`."""
    file = folder / Path(path).name
    file.write_text(BLOCKS[path])
    return str(file)


def recipe(tmp_path, shards, **changes) -> str:
    content = tiny.recipe(shards, tmp_path / "run") | changes
    content["training"]["steps"] = 1
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def shards(tmp_path):
    return tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(2)])


def test_every_example_is_run():
    assert sorted(BLOCKS) == [
        "centre.py",
        "centre.yaml",
        "grey_phone.py",
        "kitchen.yaml",
        "prefixed.py",
        "pyproject.toml",
        "square.py",
        "stored.py",
        "taps.py",
    ]
    assert {f"{name}.py" for name in ENTRY_POINTS} == {path for path in BLOCKS if path.endswith(".py")}
    groups = {found["group"] for found in ENTRY_POINTS.values()}
    assert groups == {registry.group for registry in (SOURCES, LANGUAGES, FAMILIES, AGENTS, DEVICES)}
    assert len(REGISTRATIONS) == len(groups)
    assert not [found["path"] for found in REGISTRATIONS.values() if (ROOT / found["path"]).exists()]


def test_the_metadata_of_the_page_name_the_entry_point_of_its_agent():
    metadata = tomllib.loads(BLOCKS["pyproject.toml"])
    point = ENTRY_POINTS["centre"]
    assert metadata["project"]["entry-points"] == {point["group"]: {point["name"]: point["value"]}}
    assert metadata["tool"]["setuptools"]["py-modules"] == ["centre"]


def test_source(add, tmp_path):
    add("taps")
    folder = tmp_path / "kitchen"
    folder.mkdir()
    (folder / "good.taps").write_text("open the tap\n0.25 0.5\n0.75 0.5\n")
    command = ["convert", "--source", "taps", "--input", str(folder), "--workers", "1", "--output"]
    assert main([*command, str(tmp_path / "good")]) == OK
    assert [len(episode) for episode in ShardDataset(tmp_path / "good", subset="kitchen")] == [2]
    (folder / "bad.taps").write_text("open the tap\nnowhere\n")
    assert main([*command, str(tmp_path / "both")]) == QUARANTINED
    assert list(ShardDataset(tmp_path / "both").ids) == ["kitchen/good"]
    (folder / "bad.taps").write_text("")
    assert main([*command, str(tmp_path / "empty")]) == QUARANTINED
    assert list(ShardDataset(tmp_path / "empty").ids) == ["kitchen/good"]


def test_action_language(add, tmp_path, shards):
    module = add("prefixed")
    language = language_settings({"name": "prefixed", "bins": 50}).build()
    for action in tiny.ACTIONS:
        text = language.encode(action)
        assert text.startswith(module.PREFIX)
        assert language.encode(language.decode(text)) == text
        assert language.decode(text.removeprefix(module.PREFIX)) is None
        for end in range(len(text) + 1):
            assert language.decode(text[:end] + language.ending(text[:end])) is not None, text[:end]
    assert language.ending("tap") is None
    path = recipe(tmp_path, shards, action_language={"name": "prefixed", "bins": 10})
    assert main(["train", "--config", path]) == OK
    command = ["evaluate", "--checkpoint", str(tmp_path / "run"), "--shards", str(shards), "--split", "train"]
    assert main([*command, "--agent.constrained", "true", "--output", str(tmp_path / "out")]) == OK
    predictions = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert len(predictions) == 2 * len(tiny.ACTIONS)


def test_model_family(add, tmp_path, shards):
    add("square")
    config = tiny_qwen.CONFIGS["qwen2_vl"] | {"model_type": "fixed_vl", "tie_word_embeddings": False}
    parts = dict.fromkeys(("vision", "projector", "embeddings", "language_model", "norm", "head"), "full")
    model = {"vlm": {"config": config}, "word_tokenizer": {"vocabulary": 1000}, "train": parts}
    path = recipe(tmp_path, shards, model=model)
    assert main(["train", "--config", path, "--dry-run", "--gpu", "H100"]) == OK
    assert main(["train", "--config", path]) == OK
    command = ["evaluate", "--checkpoint", str(tmp_path / "run"), "--shards", str(shards), "--split", "train"]
    assert main([*command, "--controls", "none", "--output", str(tmp_path / "out")]) == OK


def test_agent_and_benchmark(add, tmp_path, monkeypatch):
    add("centre")
    monkeypatch.chdir(tmp_path)
    tiny.write_shards(tmp_path / "shards" / "kitchen", [tiny.episode()], split="test")
    agent, benchmark = write(tmp_path, "centre.yaml"), write(tmp_path, "kitchen.yaml")
    assert main(["evaluate", "--benchmark", benchmark, "--agent", agent, "--output", "out"]) == OK
    predicted = [row.predicted for row in read_predictions(Path("out/predictions.parquet"))]
    assert predicted == [Action.tap(0.5, 0.5)] * 2 + [Action.complete()] * 3
    command = ["evaluate", "--online", "--agent", agent, "--tasks", "1", "--output", "online"]
    assert main(command) == OK
    assert main(["act", "--agent", agent, "--device", "simulated:general/test/7", "--trace", "trace"]) is not None
    assert [step.action for step in read_trace(Path("trace")).steps][-1] == Action.complete()


def test_an_agent_that_looks_up_stored_predictions(add, tmp_path):
    add("stored")
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(2)], split="test")
    rows = [{"episode_id": name, "step": step, "y": 0.25, "x": 0.75} for name in "01" for step in (0, 2)]
    (tmp_path / "taps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "stored.yaml").write_text(f"agent: stored\nfile: {tmp_path / 'taps.jsonl'}\n")
    command = ["evaluate", "--agent", str(tmp_path / "stored.yaml"), "--shards", str(shards)]
    assert main([*command, "--output", str(tmp_path / "out")]) == OK
    for run in ("", "_no_history", "_grey_screens"):
        predictions = read_predictions(tmp_path / "out" / f"predictions{run}.parquet")
        assert [row.step for row in predictions if row.predicted == Action.tap(0.25, 0.75)] == [0, 2, 0, 2]


def test_device(add, tmp_path):
    add("centre")
    add("grey_phone")
    agent, trace = write(tmp_path, "centre.yaml"), tmp_path / "trace"
    command = ["act", "--agent", agent, "--device", "grey:one", "--goal", "tap", "--trace", str(trace)]
    assert main(command) == OK
    read = read_trace(trace)
    assert read.heading.device == "grey_one"
    assert [step.action for step in read.steps] == [Action.tap(0.5, 0.5)] * 2 + [Action.complete()]


TESTS = (
    "tests/test_variants.py",
    "tests/agents/test_new_agent.py",
    "tests/action_languages/test_every_language.py",
    "tests/action_languages/test_new_language.py",
    "tests/datasets/sources/test_new_source.py",
    "tests/settings/test_registry.py",
    "tests/devices/adb/test_adb_errors.py",
    "tests/devices/browser/test_browser_errors.py",
    "tests/models/test_new_family.py",
)
"""The tests that know all variants, as those of devices' addresses do."""


@pytest.fixture
def contribution(tmp_path) -> Path:
    """A copy of the repository with every example written and registered as the page says."""
    copy = tmp_path / "main"
    ignored = shutil.ignore_patterns("*.safetensors", "*.pyc.*")  # compiled modules are copied, those in progress not
    for name in (
        "vlm_agent",
        "tests",
        "eval",
        "recipes",
        "tools",
        "docs",
        "benchmarks",
        "studies",
        "shipped_weights",
        "pyproject.toml",
        "CONTRIBUTING.md",
        "README.md",
    ):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, copy / name, ignore=ignored)
        else:
            shutil.copy(path, copy / name)
    if (cache := ROOT / ".mypy_cache").exists():  # of `make test`: without it mypy reads PyTorch again
        shutil.copytree(cache, copy / cache.name)
    for weights in (ROOT / "vlm_agent").rglob("*.safetensors"):
        (copy / weights.relative_to(ROOT)).symlink_to(weights)
    if (ROOT.parent / "shared").exists():
        (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    for path, registry, file, statement, line in (found.groups() for found in REGISTRATIONS.values()):
        (copy / path).write_text(BLOCKS[Path(path).name], encoding="utf-8")
        registered = copy / file
        text = registered.read_text(encoding="utf-8")
        start = re.search(rf"^{registry}\b.*= Registry\([^{{]*{{", text, re.MULTILINE).end()
        if registry == "SOURCES":
            start = text.index("for source in (", start) + len("for source in (")
        text = text[:start] + line + text[start:]
        if statement:
            text = text.replace("\nfrom vlm_agent", f"\n{statement}\nfrom vlm_agent", 1)
        registered.write_text(text, encoding="utf-8")
    return copy


@pytest.mark.slow
def test_examples_added_as_the_page_describes_pass_the_checks_of_make_test(contribution):
    def run(*command: str) -> None:
        done = subprocess.run([sys.executable, "-m", *command], cwd=contribution, capture_output=True, text=True)
        assert done.returncode == 0, f"{command[0]}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"

    edited = [found["file"] for found in REGISTRATIONS.values()]
    examples = [found["path"] for found in REGISTRATIONS.values()]
    run("ruff", "check", "--fix", "--select", "I", "--quiet", *edited)
    run("ruff", "format", "--quiet", *edited)
    run("ruff", "check")
    run("ruff", "format", "--check")
    run("mypy", *examples, *edited)
    run("pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS)
