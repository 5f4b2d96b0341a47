"""The recipes, benchmarks, agent files and DeepSpeed configurations that come with the package.

In a checkout they lie at the top of the repository, where people edit them. A wheel carries copies of the same folders
inside the package (`setup.py`), so an installed `vlm-agent` has them wherever it runs.
"""

import difflib
import json
from pathlib import Path

from vlm_agent.files.installation import ROOT

FOLDERS = {
    "recipes": "*.yaml",
    "recipes/comparison": "*.yaml",
    "eval": "*.yaml",
    "eval/agents": "*.yaml",
    "eval/comparisons": "*.yaml",
    "deepspeed_configs": "*.json",
}
"""The folders, and the names of the files in them that count."""


def shipped_files() -> list[Path]:
    """All of them, folder by folder, by name."""
    return [path for folder, pattern in FOLDERS.items() for path in sorted((ROOT / folder).glob(pattern))]


def find_shipped(path: Path) -> Path:
    """`path` if it exists, else the shipped file of this relative path, else `path`.

    So `recipes/forkme.yaml` works in any working directory, and a file of the user's with that name comes first.
    """
    shipped = ROOT / path
    return shipped if not path.exists() and shipped in shipped_files() else path


def by_name() -> dict[str, Path]:
    """The shipped files by their relative path, and by their name without folder and ending."""
    files = shipped_files()
    return {path.stem: path for path in files} | {label(path): path for path in files}


def suggestion(name: str) -> str:
    """The end of an error about a file that does not exist: the shipped file with a name like it, and where all are."""
    files = by_name()
    nearest = [name] if name in files else difflib.get_close_matches(name, files, n=1)
    meant = "".join(f"did you mean {label(files[one])}? " for one in nearest)
    return f"{meant}`vlm-agent recipes` lists the shipped files"


def label(path: Path) -> str:
    """A shipped file's relative path, as a command takes it."""
    return path.relative_to(ROOT).as_posix()


def summary(path: Path) -> str:
    """One line about a shipped file: the first of its header, or for JSON what DeepSpeed does with it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return text.partition("\n")[0].removeprefix("#").strip()
    zero = json.loads(text)["zero_optimization"]
    offload = ", weights and optimizer state in CPU memory" if "offload_param" in zero else ""
    ranks = "CPU ranks" if path.stem.startswith("cpu_") else "GPUs"
    return f"DeepSpeed ZeRO stage {zero['stage']} on {ranks}{offload}."
