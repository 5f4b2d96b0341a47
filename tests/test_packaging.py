"""The package as others install it: a wheel that runs anywhere, and ranges that the tested versions satisfy."""

import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vlm_agent.installation import NAME

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built of a copy, as a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns(".*", "runs", "build", "dist", "tests", "*.egg-info", "__pycache__", "shared")
    shutil.copytree(ROOT, folder / "source", ignore=skipped)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", folder, folder / "source"], check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """`vlm-agent` in a new environment that sees the libraries of this one, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index"]
    subprocess.run([*command, "--quiet", wheel], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    # A path file adds folders without running what an editable install left in them.
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "vlm-agent"


def run(command, folder, *words):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_wheel_holds_recipes_benchmarks_and_bases_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, pattern in (("recipes", "*.yaml"), ("eval", "*.yaml"), ("deepspeed_configs", "*.json")):
        assert {f"vlm_agent/_shipped/{folder}/{path.name}" for path in (ROOT / folder).glob(pattern)} <= names
    package = ROOT / "vlm_agent"
    weights = {path.relative_to(ROOT).as_posix() for path in package.rglob("*.safetensors")}
    assert {path.split("/")[1] for path in weights} == {"models", "screens"}
    assert weights <= names
    pages = [path for path in package.rglob("*") if path.suffix in (".jinja", ".css", ".js", ".txt", ".html", ".yaml")]
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= names
    assert not [name for name in names if name.startswith(("tests", "tools", "build"))]


def test_an_installed_command_runs_in_an_empty_folder(installed, tmp_path):
    assert "recipes/forkme.yaml" in run(installed, tmp_path, "recipes")
    run(installed, tmp_path, "recipes", "phone_vlm_tiny_lora", "--output", "mine.yaml")
    assert (tmp_path / "mine.yaml").read_text() == (ROOT / "recipes/phone_vlm_tiny_lora.yaml").read_text()
    code = "import vlm_agent; print(vlm_agent.__file__)"
    assert str(installed.parents[1]) in run(installed.with_name("python"), tmp_path, "-c", code)
    run(installed, tmp_path, "simulate", "--episodes", "12", "--output", "aitw", "--workers", "1")
    run(installed, tmp_path, "convert", "--input", "aitw", "--output", "shards", "--splits", "aitw/splits.json")
    dry_run = ("train", "--data.shards", "shards", "--dry-run")
    printed = run(installed, tmp_path, *dry_run, "--config", "mine.yaml")
    assert printed.startswith("Parameters")
    # By its relative path, although the folder has no such file.
    assert run(installed, tmp_path, *dry_run, "--config", "recipes/phone_vlm_tiny_lora.yaml") == printed


def test_the_tested_versions_are_within_the_ranges_of_the_package():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [Requirement(line) for lines in (project["dependencies"], *extras.values()) for line in lines]
    asked = {requirement.name: requirement.specifier for requirement in requirements if requirement.name != NAME}
    assert set(asked) == set(pins)
    assert {name for name in asked if not asked[name].contains(pins[name])} == set()
    assert set(extras) - {"all", "dev"} == {extra for line in extras["all"] for extra in Requirement(line).extras}
