"""A run folder: its files, whether it belongs to the recipe, the process that trains into it, room on its disk.

RUN/recipe.yaml       the resolved recipe
RUN/checkpoints/      a stopped or killed run resumes from the newest (`checkpoints.py` lists the files of one)
RUN/tensorboard/
RUN/lock              held, and names its process, while one trains here (`run_lock`)
RUN/progress.jsonl    figures of every log step and validation (`training/journal.py`)
RUN/tracking.json     only with `training.track`: the run of the tracker, which a resumed run continues
RUN/stopped           only after a stop signal: after which step, and how to resume
RUN/model/            the trained weights (an adapter where LoRA was used), RUN/tokenizer/ beside them
RUN/base/             the base under an adapter, where it started from random weights
RUN/features.json     the features that the model reads, where the weights are an adapter
RUN/references.parquet  only with `data.references`: the demonstrations that sentences read
RUN/slurm.tsv         only on Slurm: starts and ends of jobs; RUN/logs/JOB/: output of each rank
RUN/sources.json      commits or fingerprints of the checkpoints that the weights started from
RUN/episodes.parquet  the ids of the episodes that it and its base learned from (`models/weights/origin.py`)
RUN/README.md         the model card; RUN/model/README.md is the same (`vlm_agent/models/card/`)
RUN/run.json          versions, commit, data, figures, SHA-256 of every file that decides an answer; written last: it
                      means finished
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.filesize import decimal
from safetensors import SafetensorError

from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.errors import RecipeError, TrainingError
from vlm_agent.files import atomic_write, file_lock, write_checked
from vlm_agent.files.jobs import NO_ROOM
from vlm_agent.models.card.card import write_card
from vlm_agent.models.run_layout import DIGESTS, EMBEDDED, FINISHED, LOCK, RECIPE_FILE, trained
from vlm_agent.models.weights.origin import keys_of_folders, read_sources
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.run_folder.checkpoints import decisive_keys

Kind = TypeVar("Kind", bound=BaseModel)
_RECORDED = ("torch", "transformers", "peft", "accelerate", "deepspeed", "bitsandbytes", "timm")

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""In the messages of safetensors, which is written in Rust."""

_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|unexpected pos")
"""`torch.save` reports any failed write so, without its reason."""

_PROBE = 16 << 20


def is_finished(run: Path) -> bool:
    return (run / FINISHED).exists()


def with_precision(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with `training.bf16: auto` replaced by the precision that the run in the folder started with, or for
    a new run by that of this machine.

    A run that resumes on a GPU or CPU of another kind does not change its precision midway.
    """
    if recipe.training.bf16 != "auto":
        return recipe
    path = run / RECIPE_FILE
    bf16 = read_recipe(path).training.bf16 if path.exists() else has_bf16()
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"bf16": bf16})})


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with absolute paths of the folders that it reads: the run is loaded from other folders, too. Names on
    the hub and embedded bases stay."""
    model, data = recipe.model, recipe.data
    sources: dict[str, Any] = {key: _absolute(source, "checkpoint") for key, source in model.sources.items()}
    if model.features is not None:
        sources |= {"features": _absolute(model.features, "checkpoint")}
    if model.base not in EMBEDDED:
        model = _absolute(model, "base")
    model = _absolute(model.model_copy(update=sources), "word_embeddings")
    for key in ("shards", "chats", "features"):
        data = _absolute(data, key)
    if data.references is not None:
        data = data.model_copy(update={"references": _absolute(data.references, "encoder")})
    return recipe.model_copy(update={"model": model, "data": data})


def _absolute(section: Kind, key: str) -> Kind:
    place = getattr(section, key)
    if place is None or not Path(place).exists():
        return section
    return section.model_copy(update={key: str(Path(place).absolute())})


def refuse_other_runs(run: Path, recipe: Recipe) -> None:
    """Raises RecipeError where the folder holds a run of another recipe, or a finished one without its recipe."""
    path = run / RECIPE_FILE
    if is_finished(run) and not path.exists():
        raise RecipeError(f"{run} holds a finished run without {RECIPE_FILE}; choose another output, or move it away")
    if not path.exists():
        return
    before, now = decisive_keys(read_recipe(path)), decisive_keys(recipe)
    names = {*before, *now} - keys_of_folders(run, recipe.model)
    changed = [key for key in sorted(names) if before.get(key) != now.get(key)]
    if changed:
        raise RecipeError(
            f"{run} was started with another recipe ({path}), which differs in {', '.join(changed)}; restore these "
            "values, choose another output, or move the folder away"
        )


def claim(run: Path, recipe: Recipe) -> None:
    """Writes recipe.yaml, which binds the folder to the recipe.

    Call it once data and model are loaded: a mistyped path must not make the folder refuse the corrected recipe.
    """
    _commit()  # here: the checkout may be another one when the run ends
    with atomic_write(run / RECIPE_FILE) as temporary:
        temporary.write_text(recipe.to_yaml(), encoding="utf-8")


def mark_finished(run: Path, recipe: Recipe, manifest: dict | None, figures: dict) -> None:
    """Writes the model card, then run.json, which marks the run as finished.

    `manifest`: the shards'; None without shards.
    """
    shards = None if manifest is None or recipe.data.shards is None else Path(recipe.data.shards)
    record: dict[str, Any] = {
        "figures": figures,
        "versions": _versions(),
        "commit": _commit(),
        "command": sys.argv,
        "sources": read_sources(run),
        "shards": recipe.data.shards,
        "manifest": manifest,
        "manifest_sha256": None if shards is None else manifest_digest(shards),
    }
    write_card(run, recipe, record["sources"], record, run.absolute().name)
    write_checked(run / FINISHED, record | {DIGESTS: trained(run).digests}, indent=2)


def _versions() -> dict[str, str]:
    """Versions of Python and of those of the recorded packages that are installed: some are extras."""
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def _commit() -> str | None:
    """The commit of this code when the run started (`claim`); None where it was installed without its repository."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (constant arguments)
    return result.stdout.strip() if result.returncode == 0 else None


# One process trains into a folder at a time.


def run_lock(run: Path) -> AbstractContextManager[object]:
    """Holds the run folder for this process. Only rank 0 calls it, because only rank 0 writes what all ranks share.

    Raises DatasetError, which names host and process of the owner, where another process holds it.
    """
    owner = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    refusal = (
        f"another process is training into {run}; wait for it, or stop it on its machine; its end releases the folder, "
        "also that of a crashed machine once the file server notices"
    )
    return file_lock(run / LOCK, refusal, owner=owner)


# A full disk, under whichever error the library that writes reports it.


@contextmanager
def explained(run: Path) -> Iterator[None]:
    """Raises TrainingError in place of an error in the block that comes from a disk that is full or may not be written
    to, or from a killed process of a DataLoader, whose error may arise in any line."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if (explanation := _explanation(error, run)) is None:
            raise
        raise TrainingError(explanation) from error


def _explanation(error: Exception, run: Path) -> str | None:
    if str(error).startswith("DataLoader worker (pid"):
        return (
            "a process that prepares screens (data.workers) died, possibly out of memory; run the same command again "
            "to resume, with fewer data.workers if needed"
        )
    number = next(filter(None, (_number(one, run) for one in _causes(error))), None)
    if number is None:
        return None
    return (
        f"cannot write to {run}: {os.strerror(number)}; its disk, mounted at {_mount(run)}, has "
        f"{decimal(shutil.disk_usage(run).free)} free. Make room, then run the same command again to resume from "
        "the newest checkpoint"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _number(error: BaseException, run: Path) -> int | None:
    """The number of the operating system's error, if it is one of a disk that takes no more."""
    if isinstance(error, OSError):
        number = error.errno
    elif isinstance(error, SafetensorError):
        found = _OS_ERROR.search(str(error))
        number = None if found is None else int(found[1])
    else:
        number = _failed_write(run) if _TORCH_WRITER.search(str(error)) else None
    return number if number in NO_ROOM else None


def _failed_write(run: Path) -> int | None:
    """The number of the error that another write to the folder has now; None if it succeeds."""
    path = run / f".room-{os.getpid()}"
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _PROBE)
    except OSError as error:
        return error.errno
    finally:
        path.unlink(missing_ok=True)
    return None


def _mount(path: Path) -> Path:
    path = path.absolute()
    return next(parent for parent in (path, *path.parents) if parent.is_mount())
