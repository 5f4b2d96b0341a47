"""The worked examples of CONTRIBUTING.md run as they are printed, registered by the line that the page gives."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from helpers import tiny, tiny_qwen

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
REGISTRIES = {"LANGUAGES": LANGUAGES, "FAMILIES": FAMILIES, "AGENTS": AGENTS, "DEVICES": DEVICES}


@pytest.fixture
def add(monkeypatch):
    """Executes the example at a path as the module there, and adds its line to the registry."""

    def add(path: str, registry: str) -> ModuleType:
        module = ModuleType(path.removesuffix(".py").replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(BLOCKS[path], path, "exec"), module.__dict__)  # noqa: S102 (the repository's own page)
        file, line = re.search(rf"The line in `{registry}` \(`(\S+)`\): `([^`]+)`", PAGE).groups()
        assert registry in (ROOT / file).read_text(encoding="utf-8")
        if registry == "SOURCES":
            assert line == f"{Path(path).stem}.SOURCE,"
            monkeypatch.setitem(SOURCES, module.SOURCE.name, module.SOURCE)
        else:
            for name, value in eval(f"{{{line}}}", module.__dict__).items():  # noqa: S307 (the same)
                monkeypatch.setitem(REGISTRIES[registry], name, value)
        return module

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
        "eval/agents/centre.yaml",
        "eval/kitchen.yaml",
        "vlm_agent/action_languages/prefixed.py",
        "vlm_agent/agents/centre.py",
        "vlm_agent/datasets/sources/taps.py",
        "vlm_agent/devices/grey_phone.py",
        "vlm_agent/models/qwen_vl/square.py",
    ]
    assert not [path for path in BLOCKS if (ROOT / path).exists()]


def test_source(add, tmp_path):
    add("vlm_agent/datasets/sources/taps.py", "SOURCES")
    folder = tmp_path / "kitchen"
    folder.mkdir()
    (folder / "good.taps").write_text("open the tap\n0.25 0.5\n0.75 0.5\n")
    command = ["convert", "--source", "taps", "--input", str(folder), "--workers", "1", "--output"]
    assert main([*command, str(tmp_path / "good")]) == OK
    assert [len(episode) for episode in ShardDataset(tmp_path / "good", subset="kitchen")] == [2]
    (folder / "bad.taps").write_text("open the tap\nnowhere\n")
    assert main([*command, str(tmp_path / "both")]) == QUARANTINED
    assert list(ShardDataset(tmp_path / "both").ids) == ["good"]


def test_action_language(add, tmp_path, shards):
    module = add("vlm_agent/action_languages/prefixed.py", "LANGUAGES")
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
    assert main([*command, "--constrained", "--output", str(tmp_path / "out")]) == OK
    predictions = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert len(predictions) == 2 * len(tiny.ACTIONS)


def test_model_family(add, tmp_path, shards):
    add("vlm_agent/models/qwen_vl/square.py", "FAMILIES")
    config = tiny_qwen.CONFIGS["qwen2_vl"] | {"model_type": "fixed_vl", "tie_word_embeddings": False}
    parts = dict.fromkeys(("vision", "projector", "embeddings", "language_model", "norm", "head"), "full")
    model = {"vlm": {"config": config}, "word_tokenizer": {"vocabulary": 1000}, "train": parts}
    path = recipe(tmp_path, shards, model=model)
    assert main(["train", "--config", path, "--dry-run", "--gpu", "H100"]) == OK
    assert main(["train", "--config", path]) == OK
    command = ["evaluate", "--checkpoint", str(tmp_path / "run"), "--shards", str(shards), "--split", "train"]
    assert main([*command, "--no-controls", "--output", str(tmp_path / "out")]) == OK


def test_agent_and_benchmark(add, tmp_path, monkeypatch):
    add("vlm_agent/agents/centre.py", "AGENTS")
    monkeypatch.chdir(tmp_path)
    tiny.write_shards(tmp_path / "shards" / "kitchen", [tiny.episode()], split="test")
    agent, benchmark = write(tmp_path, "eval/agents/centre.yaml"), write(tmp_path, "eval/kitchen.yaml")
    assert main(["evaluate", "--benchmark", benchmark, "--agent", agent, "--output", "out"]) == OK
    predicted = [row.predicted for row in read_predictions(Path("out/predictions.parquet"))]
    assert predicted == [Action.tap(0.5, 0.5)] * 2 + [Action.complete()] * 3
    command = ["evaluate", "--online", "--agent", agent, "--tasks", "1", "--output", "online"]
    assert main(command) == OK
    assert main(["act", "--agent", agent, "--device", "simulated:general/test/7", "--trace", "trace"]) is not None
    assert [step.action for step in read_trace(Path("trace")).steps][-1] == Action.complete()


def test_device(add, tmp_path):
    add("vlm_agent/agents/centre.py", "AGENTS")
    add("vlm_agent/devices/grey_phone.py", "DEVICES")
    agent, trace = write(tmp_path, "eval/agents/centre.yaml"), tmp_path / "trace"
    command = ["act", "--agent", agent, "--device", "grey:one", "--goal", "tap", "--trace", str(trace)]
    assert main(command) == OK
    read = read_trace(trace)
    assert read.heading.device == "grey_one"
    assert [step.action for step in read.steps] == [Action.tap(0.5, 0.5)] * 2 + [Action.complete()]
