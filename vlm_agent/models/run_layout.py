"""The layout of a trained model on disk: a finished run, or a checkpoint of an unfinished one.

RUN/recipe.yaml, RUN/sources.json (what the base was read from), RUN/tokenizer/, RUN/base/ (of an adapter on random
weights), RUN/features.json (of an adapter on a model that reads screen features), RUN/references.parquet (of a run with
`data.references`), RUN/model/ once the run is finished;
RUN/checkpoints/checkpoint-N/ holds what RUN/model/ would hold after N steps.

Pretrained models that come with the package: a recipe says `base: phone_vlm_tiny` and nothing is downloaded.

Each is a run's folder without its training state: model/, tokenizer/, recipe.yaml, run.json with their digests, and
README.md, its model card, with the card's pictures.

Every file that decides an answer has a SHA-256, which is compared before the file is used (`Trained.check`): of a
finished run and of an embedded base in run.json, of a merged one in merge.json, of a checkpoint in its whole.json. A
run that was interrupted before run.json has none for its recipe and tokenizer.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from vlm_agent.errors import CheckpointError
from vlm_agent.files import parsing, read_checked, version_of
from vlm_agent.files.weight_files import check_file

MODEL_FOLDER = "model"
ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"  # in it, where it has an adapter
BASE_FOLDER = "base"
TOKENIZER_FOLDER = "tokenizer"
RECIPE_FILE = "recipe.yaml"
FEATURES_FILE = "features.json"
REFERENCES_FILE = "references.parquet"
CARD = "README.md"
CHECKPOINTS = "checkpoints"
FINISHED, MERGED = "run.json", "merge.json"
"""The record of a finished run, and that of a merged checkpoint."""

CHECKPOINT_RECORD, LOCK = "whole.json", "lock"
"""The record of a complete checkpoint (`training/run_folder/checkpoint_record.py`)."""

DIGESTS = "files"
"""The key of a record: relative path → SHA-256."""

_THREADS = 8


@dataclass(frozen=True)
class Trained:
    """`run`: the run folder. `weights`: the folder of an adapter, if `adapted`, else of a whole model."""

    run: Path
    weights: Path
    adapted: bool

    @property
    def recipe(self) -> Path:
        return self.run / RECIPE_FILE

    @property
    def tokenizer(self) -> Path:
        return self.run / TOKENIZER_FOLDER

    @property
    def base(self) -> Path:
        return self.run / BASE_FOLDER

    @property
    def features(self) -> Path:
        """Beside an adapter, which saves no configuration: `features` of the configuration of its model."""
        return self.run / FEATURES_FILE

    @property
    def references(self) -> Path:
        """The demonstrations that the sentences of the run refer to (`data.references`)."""
        return self.run / REFERENCES_FILE

    @property
    def files(self) -> list[Path]:
        """Every file that the output of the model depends on, in a fixed order."""
        weights = [path for path in self.weights.glob("*") if path.suffix in (".safetensors", ".json")]
        decisive = [path for path in weights if _is_decisive(path.name)]
        others = [path for part in (self.base, self.tokenizer) for path in part.rglob("*") if path.is_file()]
        optional = [path for path in (self.features, self.references) if path.is_file()]
        return [self.recipe, *optional, *sorted(decisive), *sorted(others)]

    @property
    def digests(self) -> dict[str, str]:
        """Path of each of `files`, relative to `run` → its SHA-256. A file is read once by a process, unless it
        changes: 14 GB of weights take seconds to tens of seconds."""
        with ThreadPoolExecutor(_THREADS) as pool:  # hashing releases the GIL
            digests = list(pool.map(_digest, self.files))
        return {path.relative_to(self.run).as_posix(): digest for path, digest in zip(self.files, digests, strict=True)}

    @property
    def digest(self) -> str:
        """A SHA-256 of names and content of all `files`: what identifies the trained model."""
        return hashlib.sha256(json.dumps(self.digests).encode()).hexdigest()

    def check(self, weights: bool = True) -> None:
        """Raises CheckpointError where one of `files` differs from its recorded SHA-256, is cut, or is missing.

        `weights`: false compares all but the weights, in milliseconds.
        """
        for name, digest in self._recorded().items():
            path = self.run / name
            if not weights and path.suffix == ".safetensors":
                continue
            if not path.is_file():
                raise CheckpointError(f"{path} is missing; {self._remedy}")
            if _digest(path) != digest:
                if path.suffix == ".safetensors":
                    check_file(path)  # a pointer of git-lfs, or half a file
                raise CheckpointError(
                    f"{path} differs from the SHA-256 that was recorded when it was written: it is damaged, or was "
                    f"edited; {self._remedy}{_OF_RECIPE if path == self.recipe else ''}"
                )

    def _recorded(self) -> dict[str, str]:
        """Files and their SHA-256. A checkpoint has those of its own record, and those of the run but its weights."""
        recorded: dict[str, str] = {}
        for record in (self.run / FINISHED, self.run / MERGED):
            if record.is_file():
                recorded |= read_checked(record, self._remedy, _Record).get(DIGESTS, {})
        if self.weights == self.run / MODEL_FOLDER:
            return recorded
        own = self.weights.relative_to(self.run).as_posix()
        others = {name: digest for name, digest in recorded.items() if not name.startswith(f"{MODEL_FOLDER}/")}
        return others | {f"{own}/{name}": digest for name, digest in _of_checkpoint(self.weights).items()}

    @property
    def _remedy(self) -> str:
        if self.run == _embedded_folder(self.run.name):
            return "the installation is damaged: install the package again"
        if self.weights != self.run / MODEL_FOLDER:
            return "use another checkpoint, or restore the file from a copy of the run"
        return "restore it from a copy of the run, or train again"


def _is_decisive(name: str) -> bool:
    return name.removesuffix(".index.json").endswith((".safetensors", "config.json"))  # not training state


def trained(path: Path) -> Trained:
    """The model at `path`, a run folder or one of its checkpoints.

    Raises FileNotFoundError if `path` is neither.
    """
    is_checkpoint = (whole := path.absolute()).parent.name == CHECKPOINTS
    run, weights = (whole.parent.parent, whole) if is_checkpoint else (path, path / MODEL_FOLDER)
    adapted = (weights / ADAPTER_WEIGHTS).is_file()
    if not adapted and not (weights / "config.json").is_file():
        raise FileNotFoundError(
            2, "no model: neither a finished run nor a run's checkpoint (RUN/checkpoints/checkpoint-N)", str(path)
        )
    return Trained(run, weights, adapted)


_OF_RECIPE = (
    ". To name another place of a base, use --model.KEY.checkpoint PATH of evaluate, act and merge; to train with "
    "other settings, use another output"
)


@dataclass
class _Record:
    """What a record must hold, among more."""

    files: dict[str, str] = field(default_factory=dict)


@cache
def _digest_of_version(path: Path, version: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(path: Path) -> str:
    return _digest_of_version(path.absolute(), version_of(path))


def _of_checkpoint(folder: Path) -> dict[str, str]:
    """The SHA-256 of the model's own files in a complete checkpoint, by its record; its training state is left out."""
    path = folder / CHECKPOINT_RECORD
    remedy = "the checkpoint is damaged; use another one"
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: the checkpoint is incomplete; use another one")
    with parsing(path, remedy):
        record = json.loads(path.read_bytes())
        checksum = record.pop("checksum")
        if checksum != hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest():
            raise ValueError("its checksum differs")
        found = {name: str(of_file["sha256"]) for name, of_file in record["files"].items()}
    return {name: found[name] for name in found if _is_decisive(name)}


def checked(path: Path, weights: bool = False) -> Trained:
    """The model at `path`, whose files have their recorded SHA-256; `weights`: also those of the weights.

    Raises what `trained` and `Trained.check` raise.
    """
    found = trained(path)
    found.check(weights)
    return found


EMBEDDED = {"phone_vlm_tiny": "5650da5d30d2b9690ef444696b895a2e6937a0ee704274d09d8126a7606fb6b0"}
"""Name → sha256 of the weights that the model card and all published results refer to."""

WEIGHTS = "model.safetensors"


def base_folder(base: str) -> Path:
    """The folder of a recipe's `base`: the name of an embedded model, else the path of a run.

    Raises CheckpointError if a file of an embedded model is missing or damaged, or its weights are others.
    """
    if base not in EMBEDDED:
        return Path(base)
    folder = _embedded_folder(base)
    found = Trained(folder, folder / MODEL_FOLDER, adapted=False)
    found.check()
    weights = found.weights / WEIGHTS
    if (digest := _digest(weights)) != EMBEDDED[base]:
        raise CheckpointError(
            f"{weights} is not the {base} of this version (sha256 {digest[:12]}…, expected {EMBEDDED[base][:12]}…); "
            f"{found._remedy}"
        )
    return folder


def _embedded_folder(base: str) -> Path:
    return Path(str(files("vlm_agent.models") / "bases" / base))
