"""Predictions in parts, written during an evaluation so that it can be resumed.

    OUT/parts/<run>/00012.parquet    the predictions of 16 episodes, each file written atomically
    OUT/parts/<run>/00012.json       how many of their steps needed no decoding, and the demonstrated actions that the
                                     agent's tokenizer cannot write; written before the predictions
    OUT/parts/<run>.json             the sum over all parts: the run is merged, and its parts are removed
    OUT/predictions.parquet          all parts in order; predictions_<run>.parquet for other runs

The plan alone decides which episodes a part holds, so any process may write any part at any time.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.evaluation.identity import AGENT
from vlm_agent.evaluation.offline.plan import job
from vlm_agent.evaluation.predictions import Prediction, read_predictions, write_predictions
from vlm_agent.files import atomic_write, file_lock
from vlm_agent.jobs import ArrayTask

EPISODES_PER_PART = 16

_UNWRITABLE = "unwritable"


@dataclass(frozen=True)
class Parts:
    """The parts in an output folder; `chosen` are the indices of the evaluated episodes."""

    output: Path
    chosen: Sequence[int]

    @property
    def numbers(self) -> range:
        return range(-(-len(self.chosen) // EPISODES_PER_PART))

    def episodes(self, number: int) -> Sequence[int]:
        return self.chosen[number * EPISODES_PER_PART : (number + 1) * EPISODES_PER_PART]

    def missing(self, runs: Sequence[str], task: ArrayTask = ArrayTask()) -> list[int]:  # noqa: B008 (frozen)
        """Parts of this task that are incomplete for any of `runs`; a merged run is complete."""
        unmerged = [run for run in runs if not self._is_merged(run)]
        return [
            number
            for number in task.items(self.numbers)
            if not all(self._path(run, number).exists() for run in unmerged)
        ]

    def write(self, run: str, number: int, predictions: Sequence[Prediction], unwritable: Sequence[str] = ()) -> None:
        """`unwritable`: a line for each demonstrated action that the agent's tokenizer cannot write."""
        path = self._path(run, number)
        from_prefill = [row.usage.from_prefill for row in predictions]
        count = None if None in from_prefill else sum(map(bool, from_prefill))
        _write_json(path.with_suffix(".json"), {"steps": len(predictions), "settled": count} | _listed(unwritable))
        write_predictions(path, predictions)

    def merge(self, run: str) -> Path:
        """Merges all parts into one predictions file and removes them; a merged run is not changed."""
        path = self.merged_path(run)
        if not self._is_merged(run):
            paths = [self._path(run, number) for number in self.numbers]
            write_predictions(path, (row for part in paths for row in read_predictions(part)))
            summaries = [json.loads(part.with_suffix(".json").read_text(encoding="utf-8")) for part in paths]
            from_prefill = [summary["settled"] for summary in summaries]
            total = None if None in from_prefill else sum(from_prefill)
            unwritable = [line for one in summaries for line in one.get(_UNWRITABLE, ())]
            steps = sum(one["steps"] for one in summaries)
            _write_json(self._summary(run), {"steps": steps, "settled": total} | _listed(unwritable))
        shutil.rmtree(self._folder(run), ignore_errors=True)
        return path

    def share_from_prefill(self, run: str) -> float | None:
        """The share of a merged run's steps that needed no decoding; None if the agent does not report it."""
        summary = json.loads(self._summary(run).read_text(encoding="utf-8"))
        return None if summary["settled"] is None else summary["settled"] / summary["steps"]

    def unwritable(self, run: str) -> list[str]:
        """The lines of `write` for a merged run."""
        return json.loads(self._summary(run).read_text(encoding="utf-8")).get(_UNWRITABLE, [])

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
def lock_output(output: Path, task: ArrayTask) -> Iterator[None]:
    """Locks the folder for one process, or for one task of a job array next to the others (`Job.locked`).

    Raises DatasetError if another process writes the same predictions.
    """
    alone = task.count == 1
    with ExitStack() as stack:
        stack.enter_context(job(output).locked(shared=not alone))
        if not alone:
            own = output / "parts" / f"lock-{task.index}-of-{task.count}"
            stack.enter_context(file_lock(own, job(output).refusal))
        yield


def _listed(unwritable: Sequence[str]) -> dict[str, list[str]]:
    return {_UNWRITABLE: list(unwritable)} if unwritable else {}


def _write_json(path: Path, content: dict) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(content), encoding="utf-8")
