"""The package as others install it: a wheel that runs anywhere, and ranges that the tested versions satisfy."""

import ast
import re
import site
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from helpers.programs.environments import CORE, EXTRAS, PROJECT, ROOT, build_wheel, environment_of, run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OF_USERS = {"android_world", "mlflow", "trackio", "wandb"}
"""Used where a user has installed them, and named by an error or by `doctor` where not."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """`vlm-agent` in a new environment that sees the libraries of this one, but not this checkout."""
    libraries = [Path(folder) for folder in site.getsitepackages()]
    return environment_of(wheel, tmp_path_factory.mktemp("environment"), libraries) / "vlm-agent"


def test_a_wheel_holds_recipes_benchmarks_pages_and_bases_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = (("recipes", "*.yaml"), ("eval", "*.yaml"), ("deepspeed_configs", "*.json"), ("docs", "*.md"))
    for folder, pattern in folders:
        assert {f"vlm_agent/_shipped/{folder}/{path.name}" for path in (ROOT / folder).glob(pattern)} <= names
    assert "vlm_agent/_shipped/requirements.txt" in names
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
    python = installed.with_name("python")
    assert str(installed.parents[1]) in run(python, tmp_path, "-c", "import vlm_agent; print(vlm_agent.__file__)")
    code = "import vlm_agent.files.installation as it; print(it.install_line('gguf'), (it.DOCS / 'agents.md').stat())"
    assert run(python, tmp_path, "-c", code).startswith("pip install 'gguf")
    run(installed, tmp_path, "simulate", "--episodes", "12", "--output", "aitw", "--workers", "1")
    run(installed, tmp_path, "convert", "--input", "aitw", "--output", "shards", "--splits", "aitw/splits.json")
    dry_run = ("train", "--data.shards", "shards", "--dry-run")
    printed = run(installed, tmp_path, *dry_run, "--config", "mine.yaml")
    assert printed.startswith("Parameters")
    # By its relative path, although the folder has no such file.
    assert run(installed, tmp_path, *dry_run, "--config", "recipes/phone_vlm_tiny_lora.yaml") == printed


def test_the_tested_versions_are_within_the_ranges_of_the_package():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    tested = [EXTRAS[name] for name in EXTRAS if name != "gpu"]  # no machine of the tests has one
    asked = {each.name: each.specifier for group in (CORE, *tested) for each in group}
    assert set(asked) == set(pins)
    assert {name for name in asked if not asked[name].contains(pins[name])} == set()
    every = {extra for line in PROJECT["optional-dependencies"]["all"] for extra in Requirement(line).extras}
    assert set(EXTRAS) - {"all", "dev", "gpu"} == every


def test_the_page_start_lists_every_extra():
    rows = re.findall(r"^\| `([\w-]+)` \| .* \|$", (ROOT / "docs" / "start.md").read_text(), re.MULTILINE)
    assert set(EXTRAS) - {"dev"} <= set(rows)


def test_what_is_imported_is_declared_and_modules_import_no_extra_when_they_load():
    """`screens/blocks` does: an import of it is where a missing OpenCV is noticed."""
    core = {canonicalize_name(each.name) for each in CORE}
    optional = {canonicalize_name(each.name) for name in set(EXTRAS) - {"dev"} for each in EXTRAS[name]}
    owners = packages_distributions()
    for path in (ROOT / "vlm_agent").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, module in third_party_imports(tree):
            found = {canonicalize_name(owner) for owner in owners.get(module, ())}
            is_late = node not in tree.body or path.parent.name == "blocks"
            assert found & core or (is_late and (found & optional or module in OF_USERS)), f"{path}: {module}"


def third_party_imports(tree):
    own = sys.stdlib_module_names | {"vlm_agent", "_typeshed"}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        yield from ((node, module) for name in names if (module := name.partition(".")[0]) not in own)
