"""The wheel beside other libraries than the tested set: without extras, and with the lowest and the newest releases.

An installation by pip would bring PyTorch's gigabytes each time. An environment here is the wheel beside folders: links
to the installed distributions that the requirements reach, and before them other releases, from `pip install --target`.
`unmet` then holds every distribution to its own requirements, as pip would.
"""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder, distribution
from pathlib import Path

import pytest
from helpers.programs.environments import (
    CORE,
    EXTRAS,
    ROOT,
    applies,
    build_wheel,
    environment_of,
    link_libraries,
    run,
    run_each,
)
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS

pytestmark = pytest.mark.slow

RUNS = {"trained", "grey_screens", "no_history", "most_frequent_action", "blind_ceiling"}
"""Rows of the demo's table."""

TOOLS = [asked for asked in EXTRAS["dev"] if asked.name in ("pytest", "pytest-xdist", "hypothesis")]
"""What the tests below import: others, as datasets, ask for releases of their own."""

OPTIONAL = [asked for name in sorted(set(EXTRAS) - {"all", "dev", "gpu"}) for asked in EXTRAS[name]]
SHARDS = ("--data.shards", "demo/shards")
ADAPTED = ("train", "--config", "recipes/phone_vlm_tiny_lora.yaml", *SHARDS, "--training.steps", "2", "--output")
SCRATCH = ("train", "--config", "recipes/llama_vit_tiny.yaml", *SHARDS, "--output")
TIMM = ("--model.vision.config", "{model_type: timm_wrapper, architecture: vit_tiny_patch16_224}")
GGUF = ("--model.language_model.checkpoint", "weights", "--model.language_model.gguf_file", "llama.gguf")
ASKING = (
    ((*ADAPTED, "a", "--model.quantisation", "nf4"), "quantisation"),
    ((*SCRATCH, "b", *TIMM), "vision-towers"),
    (("train", "--config", "recipes/llama_vit_smollm2.yaml", *SHARDS, "--output", "c", *GGUF), "gguf"),
    ((*SCRATCH, "b", *TIMM, "--dry-run"), "vision-towers"),
    (("inspect", "--screen", "demo/contact_sheet.png"), "screens"),
    (("act", "--agent", "phone_vlm_tiny", "--device", "browser:shop/7"), "browser"),
)
"""Commands that need an extra."""

# Where releases differ: Arrow's files, HTTP clients, decoding of every family, errors of recipes, and the extras.
PARTS = (
    "evaluation/test_predictions.py",
    "datasets/shards/test_versions.py",
    "agents/llm/test_client.py",
    "models/test_decoding.py",
    "models/test_new_family.py::test_its_loss_is_that_of_each_action_alone_and_decoding_continues_the_history",
    "models/llama_vit/test_screen_cache.py",
    "models/llama_vit/test_llama_vit.py",
    "models/weights/test_quantisation.py",
    "recipe/test_recipe.py",
    "screens/test_text.py",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_without_extras_everything_from_data_to_a_tapped_phone_runs(wheel, tmp_path):
    libraries = link_libraries(map(str, CORE), tmp_path / "libraries")
    environment = environment_of(wheel, tmp_path / "environment", [libraries])
    command, python = environment / "vlm-agent", environment / "python"
    check_demo(run(command, tmp_path, "demo", "--quick", "--output", "demo"), tmp_path / "demo")
    run(command, tmp_path, *ADAPTED, "run", "--training.save_steps", "1")
    versions = json.loads((tmp_path / "run/run.json").read_text())["versions"]
    assert "torch" in versions and "deepspeed" not in versions
    (tmp_path / "run/run.json").unlink()  # as if it had been killed before its end
    options = ("--shards", "demo/shards", "--split", "test", "--limit", "1", "--controls", "none", "--output", "scores")
    run_each(
        python,
        tmp_path,
        (*ADAPTED, "run", "--training.save_steps", "1"),
        ("merge", "run", "--output", "merged"),
        ("evaluate", "--checkpoint", "merged", *options),
        ("inspect", "demo/shards"),
    )
    assert (tmp_path / "run/run.json").exists()
    act = ("act", "--agent", "phone_vlm_tiny", "--device", "simulated:general/test/7", "--steps", "1")
    assert "not reached" in run(command, tmp_path, *act, "--trace", "trace", status=1)
    write_gguf_header(tmp_path / "weights/llama.gguf")
    printed = run_each(python, tmp_path, *(words for words, _ in ASKING), status=1)
    lines = [line for line in printed.splitlines() if "pip install " in line]
    for line, (words, extra) in zip(lines, ASKING, strict=True):
        assert all(asked.name in line.partition("pip install ")[2] for asked in EXTRAS[extra]), words


def check_demo(printed: str, output: Path) -> None:
    """Every stage has run, at tiny sizes: less than a minute on two idle cores."""
    commands = [line.split()[2] for line in printed.splitlines() if line.startswith("$ vlm-agent ")]
    assert commands == ["simulate", "convert", "inspect", "train", "evaluate", "evaluate", "inspect"]
    assert (output / "contact_sheet.png").stat().st_size > 0
    assert (output / "evaluation" / "report.html").stat().st_size > 0
    assert 0 < (output / "agent.gif").stat().st_size < 1_000_000
    summary = json.loads((output / "summary.json").read_text())
    assert set(summary) == RUNS | {"online", "seconds", "peak_rss_gb"}
    assert {name: row["success"] for name, row in summary["online"].items() if name != "trained"} == {
        "expert": 100,
        "complete_at_once": 0,
    }
    for row in summary["online"].values():
        for rate, interval in SHARES_OF_TASKS.items():
            assert row[interval][0] <= row[rate] <= row[interval][1]
    assert summary["seconds"] > 0
    assert summary["peak_rss_gb"] > 0
    for name in RUNS:
        for scorer in ("official", "strict"):
            assert set(summary[name][scorer]) == {"overall", *SUBSETS, "memory_goals"}
            assert 0 <= summary[name][scorer]["overall"] <= 100


def test_the_lowest_releases_of_the_ranges_work_together(wheel, tmp_path):
    """Where the lowest release is the installed one, as PyTorch's, every test runs it."""
    lowest = {each.name: re.search(r"[=>]=\s*([\w.]+)", str(each.specifier)).group(1) for each in [*CORE, *OPTIONAL]}
    lower = {name: version for name, version in lowest.items() if Version(version) != installed(name)}
    libraries = install([f"{name}=={version}" for name, version in lower.items()], tmp_path / "lowest")
    for name, version in lower.items():  # else another one requires a later release, and the range is a claim
        assert Version(found_in(libraries, name).version) == Version(version), name
    works(wheel, tmp_path, libraries)


def test_the_newest_releases_of_the_ranges_work_together(wheel, tmp_path):
    """Except PyTorch and what is built for one release of it, which are gigabytes."""
    kept = {"torch", "torchvision", "deepspeed", "bitsandbytes"}
    wanted = [str(each) for each in [*CORE, *OPTIONAL] if each.name not in kept and "==" not in str(each)]
    works(wheel, tmp_path, install(wanted, tmp_path / "newest"))


def write_gguf_header(path: Path) -> None:
    """Version 3, no tensors, and one key: the architecture."""
    path.parent.mkdir()
    key, value = b"general.architecture", b"llama"
    text = 8  # the type of the value
    fields = (b"GGUF", 3, 0, 1, len(key), key, text, len(value), value)
    path.write_bytes(struct.pack(f"<4sIQQQ{len(key)}sIQ{len(value)}s", *fields))


def works(wheel: Path, folder: Path, libraries: Sequence[Path]) -> None:
    links = link_libraries(map(str, [*CORE, *OPTIONAL, *TOOLS]), folder / "libraries")
    environment = environment_of(wheel, folder / "environment", [*libraries, links])
    python = environment / "python"
    options = ("--shards", "demo/shards", "--split", "train", "--limit", "1", "--controls", "none")
    run_each(
        python,
        folder,
        ("simulate", "--episodes", "12", "--output", "aitw", "--workers", "1"),
        ("convert", "--input", "aitw", "--output", "demo/shards", "--splits", "aitw/splits.json"),
        (*ADAPTED, "run", "--training.save_steps", "null"),
        ("evaluate", "--checkpoint", "run", *options, "--output", "scores"),
    )
    # As some releases warn users of what only this package can change.
    run(python, folder, "-W", "error", "-c", "import google_crc32c, vlm_agent.recipe")
    parts = [f"tests/{part}" for part in PARTS]
    run(python, ROOT, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *parts)


def install(wanted: Sequence[str], folder: Path) -> list[Path]:
    """The folders with the requirements, and with whatever of the installed distributions does not fit beside them.

    A folder for each round, the latest first: where pip installs another release, the metadata of the earlier stays.
    """
    folders: list[Path] = []
    for turn in range(5):
        folders.insert(0, folder / str(turn))
        download(wanted, folders[0])
        wanted = sorted({f"{each.name}{each.specifier}" for each in unmet(folders)})
        if not wanted:
            return folders
    raise AssertionError(f"these do not fit together: {wanted}")


def download(wanted: Sequence[str], folder: Path) -> None:
    options = ("--no-deps", "--only-binary", ":all:", "--no-compile", "--quiet", "--retries", "10", "--timeout", "60")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, *wanted]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, f"pip cannot install {' '.join(wanted)}: {result.stderr}"


def unmet(folders: Sequence[Path]) -> Iterator[Requirement]:
    """What the distributions there and here require, and do not find in the release that they ask for."""
    waiting, seen = [*CORE, *OPTIONAL, *TOOLS], set()
    while waiting:
        asked = waiting.pop()
        found = found_in([*folders, *sys.path], asked.name)
        if found is None or not asked.specifier.contains(Version(found.version).public, prereleases=True):
            yield asked
        key = (canonicalize_name(asked.name), *sorted(asked.extras))
        if found is not None and key not in seen:
            seen.add(key)
            waiting += [need for need in map(Requirement, found.requires or ()) if applies(need, asked.extras or {""})]


def found_in(places: Sequence[Path | str], name: str) -> Distribution | None:
    context = DistributionFinder.Context(name=name, path=[str(place) for place in places])
    return next(iter(MetadataPathFinder.find_distributions(context)), None)


def installed(name: str) -> Version:
    return Version(Version(distribution(name).version).public)
