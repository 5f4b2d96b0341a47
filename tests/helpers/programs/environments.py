"""Environments of their own for tests of installations: the wheel, and the libraries that are part of them."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from vlm_agent.files.installation import NAME

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {
    name: [asked for asked in map(Requirement, lines) if asked.name != NAME]
    for name, lines in PROJECT["optional-dependencies"].items()
}


def build_wheel(folder: Path) -> Path:
    """Built of a copy, as a build leaves folders behind."""
    skipped = shutil.ignore_patterns(".*", "runs", "build", "dist", "tests", "*.egg-info", "__pycache__", "shared")
    shutil.copytree(ROOT, folder / "source", ignore=skipped)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", folder, folder / "source"], check=True)
    return next(folder.glob("*.whl"))


def environment_of(wheel: Path, folder: Path, libraries: Sequence[Path]) -> Path:
    """The `bin` of a new environment with the wheel, which sees the `libraries`, the first before the next, and neither
    this checkout nor anything else that is installed here."""
    venv.create(folder, with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index"]
    subprocess.run([*command, "--quiet", wheel], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    # A path file adds folders without running what an editable install left in them.
    (packages / "libraries.pth").write_text("\n".join(map(str, libraries)))
    return folder / "bin"


def link_libraries(requirements: Iterable[str], folder: Path) -> Path:
    """The folder with links to all that pip would install here for the requirements, and to nothing else."""
    folder.mkdir()
    for found in _closure(requirements).values():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            _link(Path(str(found.locate_file(top))), folder / top)
    return folder


def run(command: Path | str, folder: Path, *words: str | Path, status: int = 0) -> str:
    """Runs the command in the folder, without this checkout on its path. Returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True)
    printed = result.stdout + result.stderr
    assert result.returncode == status, printed
    return result.stdout if status == 0 else printed


def run_each(python: Path, folder: Path, *commands: Sequence[str], status: int = 0) -> str:
    """Runs commands of `vlm-agent` in one process, which imports PyTorch once. Each ends with the status. Returns what
    they printed, errors included."""
    code = f"""
import json, sys
from vlm_agent.cli import main
sys.stderr = sys.stdout
for words in json.loads(sys.argv[1]):
    assert main(words) == {status}, words
"""
    return run(python, folder, "-u", "-c", code, json.dumps(commands))


def _closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [Requirement(line) for line in requirements]
    while waiting:
        requirement = waiting.pop()
        key = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
        if key in found or not applies(requirement, {""}):
            continue
        found[key] = distribution(requirement.name)
        asked = [Requirement(line) for line in found[key].requires or ()]
        waiting += [each for each in asked if applies(each, requirement.extras or {""})]
    return found


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def _link(source: Path, target: Path) -> None:
    """A folder that several distributions share (`google`) is a folder of links."""
    if source.is_dir() and not (source / "__init__.py").exists() and source.suffix != ".dist-info":
        target.mkdir(exist_ok=True)
        for child in source.iterdir():
            _link(child, target / child.name)
    elif not os.path.lexists(target):  # a listed file that is not installed (`setup.cfg`) is a link to nothing
        target.symlink_to(source)
