"""Predictions in parts: written as an evaluation goes, so that a killed one goes on where it was.

    OUT/parts/<run>/00012.parquet    the predictions of some episodes, each file written whole
    OUT/parts/<run>/00012.json       how many of their steps the prefill settled; written before
    OUT/parts/<run>.json             the same of all parts: the run is merged, and its parts are gone
    OUT/predictions.parquet          all parts in order; predictions_<run>.parquet beside it

Which episodes a part holds follows from the plan alone, so it does not matter which process makes it, nor when.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.locks import locked, remove_partials
from vlm_agent.evaluation.predictions import Prediction, read_predictions, write_predictions

EPISODES_A_PART = 16
AGENT = "trained"
"""The run whose predictions have no name of their own."""


@dataclass(frozen=True)
class Share:
    """What one process of a job array predicts: every `count`-th part, from `index`."""

    index: int = 0
    count: int = 1

    def __post_init__(self):
        if not 0 <= self.index < self.count:
            raise DatasetError(f"--shard-index is 0 to {self.count - 1} of {self.count}, got {self.index}")


@dataclass(frozen=True)
class Parts:
    """The parts of an output folder; `chosen` are the episodes of the plan."""

    output: Path
    chosen: Sequence[int]

    @property
    def numbers(self) -> range:
        return range(-(-len(self.chosen) // EPISODES_A_PART))

    def episodes(self, number: int) -> Sequence[int]:
        return self.chosen[number * EPISODES_A_PART : (number + 1) * EPISODES_A_PART]

    def missing(self, runs: Sequence[str], share: Share = Share()) -> list[int]:
        """Parts of this share that one of `runs` lacks; none of a run that is merged."""
        mine = self.numbers[share.index :: share.count]
        open_runs = [run for run in runs if not self._is_merged(run)]
        return [number for number in mine if not all(self._path(run, number).exists() for run in open_runs)]

    def write(self, run: str, number: int, predictions: Sequence[Prediction], settled: int | None) -> None:
        path = self._path(run, number)
        _write_json(path.with_suffix(".json"), {"steps": len(predictions), "settled": settled})
        write_predictions(path, predictions)

    def merge(self, run: str) -> Path:
        """One predictions file out of all parts, which are removed; done before, it stays."""
        path = self.merged_path(run)
        if not self._is_merged(run):
            paths = [self._path(run, number) for number in self.numbers]
            write_predictions(path, (row for part in paths for row in read_predictions(part)))
            told = [json.loads(part.with_suffix(".json").read_text(encoding="utf-8")) for part in paths]
            settled = [part["settled"] for part in told]
            total = None if None in settled else sum(settled)
            _write_json(self._summary(run), {"steps": sum(part["steps"] for part in told), "settled": total})
        shutil.rmtree(self._folder(run), ignore_errors=True)
        return path

    def share_settled(self, run: str) -> float | None:
        """Of a merged run, the share of steps that needed no decoding; None where the agent cannot tell."""
        told = json.loads(self._summary(run).read_text(encoding="utf-8"))
        return None if told["settled"] is None else told["settled"] / told["steps"]

    def merged_path(self, run: str) -> Path:
        return self.output / ("predictions.parquet" if run == AGENT else f"predictions_{run}.parquet")

    def _is_merged(self, run: str) -> bool:
        return self._summary(run).exists() and self.merged_path(run).exists()

    def _folder(self, run: str) -> Path:
        return self.output / "parts" / run

    def _path(self, run: str, number: int) -> Path:
        return self._folder(run) / f"{number:05}.parquet"

    def _summary(self, run: str) -> Path:
        return self.output / "parts" / f"{run}.json"


@contextmanager
def held(output: Path, share: Share) -> Iterator[None]:
    """Holds the folder for one process, or for the tasks of a job array, each with a share of its own (see `locked`).

    Whoever holds all of it removes what killed ones left half written. Raises DatasetError when another process
    predicts the same.
    """
    refusal = f"another process is evaluating into {output}; wait for it, or stop it"
    alone = share.count == 1
    with ExitStack() as stack:
        stack.enter_context(locked(output / "parts" / "lock", refusal, shared=not alone))
        if alone:
            remove_partials(output)
        else:
            stack.enter_context(locked(output / "parts" / f"lock-{share.index}-of-{share.count}", refusal))
        yield


def _write_json(path: Path, content: dict) -> None:
    with written_whole(path) as part:
        part.write_text(json.dumps(content), encoding="utf-8")
