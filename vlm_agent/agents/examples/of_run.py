"""The references of a trained run (`data.references`): demonstrations that it learned from, in RUN/references.parquet.

A row is a demonstration: its id, its goal, its actions in words, and the vector of its goal, which only the first of
several with the same goal has. So a run acts without its shards, and encodes only the goals of its tasks. The metadata
of the file has the digest of the encoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vlm_agent.agents.examples.encoder import EncoderError, SentenceEncoder, encoder_digest
from vlm_agent.agents.examples.nearest import Reference, References, by_goal
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.parquet import ParquetWriter, check_columns, open_parquet
from vlm_agent.models.run_layout import REFERENCES_FILE
from vlm_agent.recipe.data import ReferencesRecipe
from vlm_agent.sentences.notes import ReferenceLines, reference_line

_ENCODER = b"encoder"
_SCHEMA = pa.schema(
    {"episode_id": pa.string(), "goal": pa.string(), "actions": pa.list_(pa.string()), "vector": pa.list_(pa.float32())}
)
_REMEDY = "restore it from a copy of the run, or train again"


@dataclass(frozen=True)
class LearnedEpisodes:
    """A `GoalSource` in memory."""

    rows: Sequence[Reference]

    @cached_property
    def ids(self) -> Sequence[str]:
        return [row.id for row in self.rows]

    @cached_property
    def goals(self) -> Sequence[str]:
        return [row.goal for row in self.rows]

    def read(self, number: int) -> Reference:
        return self.rows[number]


@dataclass
class NamedEncoder:
    """An encoder that is loaded when it first encodes; loader processes receive its name alone."""

    name: str

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._loaded.encode(texts)

    @cached_property
    def _loaded(self) -> SentenceEncoder:
        return SentenceEncoder.load(self.name)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class RunReferences(ReferenceLines):
    """The lines of the `nearest` demonstrations of a run."""

    nearest: References[LearnedEpisodes]

    @classmethod
    def of(cls, rows: Sequence[Reference], settings: ReferencesRecipe) -> "RunReferences":
        """Raises EncoderError without the encoder."""
        digest = encoder_digest(settings.encoder)
        return cls(References(LearnedEpisodes(rows), NamedEncoder(settings.encoder), settings.count, digest))

    def lines(self, goal: str, without: str) -> list[str]:
        return [reference_line(one.goal, one.actions) for one in self.nearest.nearest(goal, without)]

    def has_goal(self, goal: str, without: str) -> bool:
        return self.nearest.has_goal(goal, without)

    @property
    def digest(self) -> bytes:
        return self.nearest.digest.encode()

    def write(self, run: Path) -> None:
        rows, vectors = self.nearest.source.rows, iter(self.nearest.vectors.tolist())
        first = {numbers[0] for numbers in self.nearest.episodes}
        columns = {
            "episode_id": [row.id for row in rows],
            "goal": [row.goal for row in rows],
            "actions": [list(row.actions) for row in rows],
            "vector": [next(vectors) if number in first else None for number in range(len(rows))],
        }
        schema = _SCHEMA.with_metadata({_ENCODER: self.digest})
        with (
            atomic_write(run / REFERENCES_FILE) as temporary,
            ParquetWriter(temporary, schema, compression="zstd", use_dictionary=False) as writer,
        ):
            writer.write_table(pa.table(columns, schema))


def first_of_goals(goals: Sequence[str]) -> list[int]:
    """The episodes that may be references, as indices of `goals`: the first two with each goal. A third one is never
    the first that is not the episode of the sentence."""
    return sorted(index for indices in by_goal(goals).values() for index in indices[:2])


def references_of_run(path: Path, settings: ReferencesRecipe) -> ReferenceLines:
    """The references that `RunReferences.write` wrote. `settings`: `data.references` of the run's recipe.

    Raises EncoderError without the encoder of its training, and DatasetError for a damaged file.
    """
    with open_parquet(path, _REMEDY) as file:
        check_columns(path, file.schema, _SCHEMA, _SCHEMA.names, _REMEDY)
        table, metadata = file.read(), file.schema.metadata or {}
    digest = encoder_digest(settings.encoder)
    if digest.encode() != metadata.get(_ENCODER):
        raise EncoderError(
            f"encoder {settings.encoder} is not the one that compared the goals of {path}; install the version of that "
            "training, or restore its folder"
        )
    vectors = table["vector"].drop_null().to_pylist()
    columns = (table[name].to_pylist() for name in ("episode_id", "goal", "actions"))
    rows = [
        Reference(number, one, goal, tuple(actions))
        for number, (one, goal, actions) in enumerate(zip(*columns, strict=True))
    ]
    try:
        known = np.array(vectors, np.float32).reshape(len(vectors), -1)
    except ValueError:
        raise DatasetError(f"{path} is damaged (its vectors have several lengths); {_REMEDY}") from None
    nearest = References(LearnedEpisodes(rows), NamedEncoder(settings.encoder), settings.count, digest, known=known)
    return RunReferences(nearest)
