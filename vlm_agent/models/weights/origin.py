"""Where the weights of a run come from: the checkpoints under them, and the episodes that they learned.

RUN/sources.json: for each checkpoint of the recipe a fingerprint of its files, and its commit on the hub. A base that
lies elsewhere on this machine is named by `bases_elsewhere`; its fingerprint must be the recorded one. So a base that
changes under an adapter is noticed.

RUN/episodes.parquet: the ids of the run's training episodes and of those of its base, sorted, each once. So an
evaluation can count them among those that it scores. The metadata of the file names bases whose episodes are unknown.
Data that was drawn during training has no episodes.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write, read_checked, write_checked
from vlm_agent.files.parquet import ParquetWriter, check_columns, open_parquet
from vlm_agent.files.weight_files import is_path, weight_files
from vlm_agent.models.hub import cached_path
from vlm_agent.models.run_layout import BASE_FOLDER, EMBEDDED, RECIPE_FILE, base_folder, checked, trained
from vlm_agent.recipe.model import PLACES, ModelRecipe, WeightsSource
from vlm_agent.recipe.run import read_recipe

SOURCES_FILE = "sources.json"
_COMMIT, _CONTENT = "commit", "content"
_WEIGHTS = (".safetensors", ".gguf")
_SAMPLES, _SAMPLE = 64, 1 << 14

_elsewhere: dict[str, str] = {}
_NAMED = "run"  # key of the run whose base lies elsewhere

LEARNED_FILE = "episodes.parquet"
_COLUMN, _UNKNOWN_BASE = "episode_id", b"unknown_base"
_SCHEMA = pa.schema({_COLUMN: pa.string()})
_LEARNED_REMEDY = "restore it from a copy of the run, or remove it: the training episodes are then unknown"


def sources_of(recipe: ModelRecipe) -> dict[str, dict[str, str]]:
    """Recipe key → {"checkpoint", "commit"} or {"checkpoint", "content"}, once the weights have been read.

    Keys with random weights are absent. A name on the hub has both; "commit" is "" if the hub's cache does not show it.
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
    """The content of RUN/sources.json; {} without this file, which an embedded base does not have."""
    path = run / SOURCES_FILE
    remedy = "restore it from a copy of the run, or remove it: the checkpoints are then not compared"
    return read_checked(path, remedy, dict[str, dict[str, str]]) if path.exists() else {}


@contextmanager
def bases_elsewhere(places: Mapping[str, str]) -> Iterator[None]:
    """In the block, the bases of runs that are read lie at `places`: keys of `PLACES` → values in place of those of
    RUN/recipe.yaml."""
    before = dict(_elsewhere)
    _elsewhere.update(places)
    try:
        yield
    finally:
        _elsewhere.clear()
        _elsewhere.update(before)


def with_bases_elsewhere(run: Path, recipe: ModelRecipe) -> ModelRecipe:
    """The recipe of `run`, with the places of its bases on this machine. Raises CheckpointError where the folder of one
    does not exist."""
    places = {place: _elsewhere[place] for place in PLACES if place in _elsewhere and place in places_in(recipe)}
    if "base" in _elsewhere and _elsewhere.setdefault(_NAMED, str(run.resolve())) != str(run.resolve()):
        places.pop("base", None)  # of the named run alone, not of the runs that it continues
    for place, value in places.items():
        key, _, part = place.partition(".")
        if part == "checkpoint":  # a revision is of the name in the recipe
            source = recipe.sources[key].model_copy(update={"checkpoint": value, "revision": None})
        elif part == "revision":
            source = recipe.sources[key].model_copy(update={"revision": value})
        recipe = recipe.model_copy(update={key: source if part else value})
    if not (run / BASE_FOLDER).is_dir():
        _check_places(run, recipe)
    return recipe


def places_in(recipe: ModelRecipe) -> set[str]:
    """The keys of `PLACES` that a recipe can have another value of."""
    checkpoints = [key for key, source in recipe.sources.items() if source.checkpoint is not None]
    of_sources = {f"{key}.{part}" for key in checkpoints for part in ("checkpoint", "revision")}
    return of_sources if recipe.base is None or recipe.base in EMBEDDED else of_sources | {"base"}


def places_of_run(run: Path, places: Mapping[str, str]) -> set[str]:
    """The keys of `PLACES` that `run`, or a run that it continues, has. `places`: as of `bases_elsewhere`."""
    recipe = read_recipe(checked(base_folder(str(run))).recipe).model
    found = places_in(recipe)
    base = places.get("base", recipe.base)
    return found | places_of_run(Path(base), {}) if "base" in found and base and Path(base).is_dir() else found


def _check_places(run: Path, recipe: ModelRecipe) -> None:
    before = read_sources(run)
    named = {f"{key}.checkpoint": source.checkpoint for key, source in recipe.sources.items()} | {"base": recipe.base}
    for place, location in named.items():
        if location is None or location in EMBEDDED or Path(location).is_dir():
            continue
        recorded = before.get(place.partition(".")[0], {})
        if place == "base" or is_path(location) or (recorded.get("checkpoint") == location and _COMMIT not in recorded):
            raise CheckpointError(
                f"{run} was trained on the folder {location} (model.{place} in {run / RECIPE_FILE}), which does not "
                f"exist here. If it lies elsewhere, add --model.{place} PATH to evaluate, act, merge or serve-check: "
                "its files are compared with those of the training"
            )


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
                f"{place}: it was at commit {source[_COMMIT]} and is at {found[_COMMIT]} now. Add --model.{key}."
                f"revision {source[_COMMIT]}; a recipe that resumes the run needs this key, too"
            )
        if _CONTENT in found and source.get(_CONTENT) != found[_CONTENT]:
            moved = "" if found["checkpoint"] == source["checkpoint"] else f" at {found['checkpoint']}"
            recorded = source.get(_CONTENT, "none")
            raise CheckpointError(
                f"{place}: its files{moved} are others; restore those that the run was trained on (fingerprint of the "
                f"files now {found[_CONTENT][:12]}…, recorded by the run {recorded[:12]}…)"
            )


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
    return {name for key, name in now.items() if _CONTENT in before.get(key, {}) and _COMMIT not in before[key]}


def _identity(source: WeightsSource) -> dict[str, str]:
    folder = Path(source.location)
    if folder.is_dir():
        return {_CONTENT: fingerprint(_files(folder, source))}
    file = "config.json" if source.gguf_file is None else source.gguf_file
    if (cached := cached_path(source.location, file, source.revision)) is None:
        return {_COMMIT: ""}
    snapshot = cached.parents[len(Path(file).parts) - 1]  # a GGUF file may lie in a folder of it
    return {_COMMIT: snapshot.name, _CONTENT: fingerprint(_files(snapshot, source))}


def _files(folder: Path, source: WeightsSource) -> list[Path]:
    """What a library reads of a checkpoint: its weights, and the configuration that says how."""
    files = weight_files(folder) if source.gguf_file is None else [folder / source.gguf_file]
    return [*files, *(path for path in (folder / "config.json",) if path.is_file())]


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


@dataclass(frozen=True)
class Learned:
    """`ids`: of the episodes, sorted. `unknown_base`: a base that has no such file; None if all episodes are known."""

    ids: Sequence[str]
    unknown_base: str | None = None


def record_learned(run: Path, ids: Iterable[str] | None, base: str | None) -> None:
    """Writes the episodes with these `ids` and those of the `base` that the weights start from.

    `ids`: None if the run's own episodes are unknown; there is then no file.
    """
    if ids is None:
        return
    before = Learned(())
    if base is not None and base not in EMBEDDED:
        before = read_learned(trained(base_folder(base)).run) or Learned((), unknown_base=base)
    learned = sorted({*ids, *before.ids})
    unknown = {} if before.unknown_base is None else {_UNKNOWN_BASE: before.unknown_base.encode()}
    schema = _SCHEMA.with_metadata(unknown)
    with (
        atomic_write(run / LEARNED_FILE) as temporary,
        ParquetWriter(temporary, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        writer.write_table(pa.table({_COLUMN: pa.array(learned, pa.string())}, schema))


def read_learned(run: Path) -> Learned | None:
    """None for a run whose training episodes are unknown. Raises DatasetError for a damaged file."""
    path = run / LEARNED_FILE
    if not path.is_file():
        return None
    with open_parquet(path, _LEARNED_REMEDY) as file:
        check_columns(path, file.schema, _SCHEMA, _SCHEMA.names, _LEARNED_REMEDY)
        unknown = (file.schema.metadata or {}).get(_UNKNOWN_BASE)
        return Learned(file.read()[_COLUMN].to_pylist(), None if unknown is None else unknown.decode())


def copy_learned(run: Path, output: Path) -> None:
    """For a checkpoint with the same weights in another form."""
    if (run / LEARNED_FILE).is_file():
        shutil.copyfile(run / LEARNED_FILE, output / LEARNED_FILE)
