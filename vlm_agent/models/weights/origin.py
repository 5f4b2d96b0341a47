"""What the weights under a run were read from, so that a base that changes under an adapter is noticed.

RUN/sources.json: for each checkpoint of the recipe its commit on the hub, or for a folder a fingerprint of its files.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from vlm_agent.checked_json import read_checked, write_checked
from vlm_agent.errors import CheckpointError
from vlm_agent.models.run_layout import base_folder, trained
from vlm_agent.recipe.model import ModelRecipe, Source

SOURCES_FILE = "sources.json"
_COMMIT, _CONTENT = "commit", "content"
_WEIGHTS = (".safetensors", ".gguf")
_SAMPLES, _SAMPLE = 64, 1 << 14


def sources_of(recipe: ModelRecipe) -> dict[str, dict[str, str]]:
    """Recipe key → {"checkpoint", "commit"} or {"checkpoint", "content"}, once the weights have been read.

    Keys with random weights are absent. "commit" is "" if the hub's cache does not show it.
    """
    if recipe.base is not None:
        weights = [path for path in trained(base_folder(recipe.base)).files if path.suffix in _WEIGHTS]
        return {"base": {"checkpoint": recipe.base, _CONTENT: fingerprint(weights)}}
    return {
        key: {"checkpoint": source.location} | _identity(source)
        for key, source in recipe.sources.items()
        if source.checkpoint is not None
    }


def record_sources(run: Path, recipe: ModelRecipe) -> None:
    """Writes RUN/sources.json, or checks it if the run resumes. Raises what `check_sources` raises."""
    if (run / SOURCES_FILE).exists():
        check_sources(run, recipe)
    else:
        write_checked(run / SOURCES_FILE, sources_of(recipe))


def read_sources(run: Path) -> dict[str, dict[str, str]]:
    """{} for a run of a version that did not record them."""
    path = run / SOURCES_FILE
    remedy = "restore it from a copy of the run, or remove it: the checkpoints are then not compared"
    return read_checked(path, remedy, dict[str, dict[str, str]]) if path.exists() else {}


def check_sources(run: Path, recipe: ModelRecipe) -> None:
    """Raises CheckpointError if a checkpoint is another one than when the run started.

    A folder may have moved. A commit that either side does not know is not compared.
    """
    before = read_sources(run)
    now = sources_of(recipe) if before else {}
    for key, source in before.items():
        found = now.get(key, {})
        name = f"model.{key}" if key == "base" else f"model.{key}.checkpoint"
        place = f"{name} {source['checkpoint']!r} has changed since {run} was started"
        if source.get(_COMMIT) and found.get(_COMMIT) and source[_COMMIT] != found[_COMMIT]:
            raise CheckpointError(
                f"{place}: it was at commit {source[_COMMIT]} and is at {found[_COMMIT]} now. Set model.{key}."
                f"revision: {source[_COMMIT]} in {run / 'recipe.yaml'}, and in the recipe of a run that resumes"
            )
        if _CONTENT in source and _CONTENT in found and source[_CONTENT] != found[_CONTENT]:
            raise CheckpointError(f"{place}: its files are others; restore those that the run was trained on")


def keys_of_folders(run: Path, recipe: ModelRecipe) -> set[str]:
    """Recipe keys of checkpoints that were folders when the run started and are folders now: they may have moved, and
    `check_sources` compares their files."""
    before = read_sources(run)
    now = {} if recipe.base is None else {"base": "model.base"}
    now |= {
        key: f"model.{key}.checkpoint"
        for key, source in recipe.sources.items()
        if source.checkpoint is not None and Path(source.location).is_dir()
    }
    return {name for key, name in now.items() if _CONTENT in before.get(key, {})}


def _identity(source: Source) -> dict[str, str]:
    folder = Path(source.location)
    if folder.is_dir():
        return {_CONTENT: fingerprint(path for path in folder.iterdir() if path.suffix in _WEIGHTS)}
    file = "config.json" if source.gguf_file is None else source.gguf_file
    cached = try_to_load_from_cache(source.location, file, revision=source.revision)
    return {_COMMIT: Path(cached).parent.name if isinstance(cached, str) else ""}


def fingerprint(files: Iterable[Path]) -> str:
    """A sha256 of the files' names, sizes and 64 evenly spaced blocks of 16 KiB of each: milliseconds for any size.

    It tells apart checkpoints whose weights differ everywhere, as those of another training do. It does not prove that
    every byte is the same.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(max(size - _SAMPLE, 0) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
