"""Which recorded episodes a model learned from, so that an evaluation can count them among those that it scores.

RUN/episodes.parquet: the ids of the run's training episodes and of those of its base, sorted, each once. The metadata
of the file names bases whose episodes are unknown. Data that was drawn during training has no episodes.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vlm_agent.files import atomic_write
from vlm_agent.files.parquet import ParquetWriter, check_columns, open_parquet
from vlm_agent.models.run_layout import EMBEDDED, base_folder, trained

LEARNED_FILE = "episodes.parquet"
_COLUMN, _UNKNOWN_BASE = "episode_id", b"unknown_base"
_SCHEMA = pa.schema({_COLUMN: pa.string()})
_REMEDY = "restore it from a copy of the run, or remove it: the training episodes are then unknown"


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
    before = Learned(()) if base is None or base in EMBEDDED else _of_base(base)
    learned = sorted({*ids, *before.ids})
    unknown = {} if before.unknown_base is None else {_UNKNOWN_BASE: before.unknown_base.encode()}
    schema = _SCHEMA.with_metadata(unknown)
    with (
        atomic_write(run / LEARNED_FILE) as temporary,
        ParquetWriter(temporary, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        writer.write_table(pa.table({_COLUMN: pa.array(learned, pa.string())}, schema))


def read_learned(run: Path) -> Learned | None:
    """None for a run of an earlier version, which did not record them. Raises DatasetError for a damaged file."""
    path = run / LEARNED_FILE
    if not path.is_file():
        return None
    with open_parquet(path, _REMEDY) as file:
        check_columns(path, file.schema, _SCHEMA, _SCHEMA.names, _REMEDY)
        unknown = (file.schema.metadata or {}).get(_UNKNOWN_BASE)
        return Learned(file.read()[_COLUMN].to_pylist(), None if unknown is None else unknown.decode())


def copy_learned(run: Path, output: Path) -> None:
    """For a checkpoint with the same weights in another form."""
    if (run / LEARNED_FILE).is_file():
        shutil.copyfile(run / LEARNED_FILE, output / LEARNED_FILE)


def _of_base(base: str) -> Learned:
    learned = read_learned(trained(base_folder(base)).run)
    return Learned((), unknown_base=base) if learned is None else learned
