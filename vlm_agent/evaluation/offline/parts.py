"""Predictions in parts, written during an evaluation so that it can be resumed.

    OUT/parts/<run>/00012.parquet    the predictions of 16 episodes, each file written atomically
    OUT/parts/<run>/00012.json       the counts of their answers (`answer_counts.py`), written before the predictions
    OUT/parts/<run>.json             the sum over all parts: the run is merged, and its parts are removed. With failed
                                     steps the parts are kept, and the next evaluation predicts those with such a step
    OUT/predictions.parquet          all parts in order; predictions_<run>.parquet for other runs

The plan alone decides which episodes a part holds, so any process may write any part at any time.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.evaluation.offline.answer_counts import AnswerCounts, read_counts
from vlm_agent.evaluation.offline.plan import job, predictions_name
from vlm_agent.evaluation.predictions import Prediction, read_predictions, write_predictions
from vlm_agent.files import file_lock, write_checked
from vlm_agent.files.jobs import ArrayTask

EPISODES_PER_PART = 16


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
        """Parts of this task that are not written for any of `runs`; a merged run is complete."""
        return self._those(runs, task, lambda run, number: not self._path(run, number).exists())

    def incomplete(self, runs: Sequence[str], task: ArrayTask = ArrayTask()) -> list[int]:  # noqa: B008 (frozen)
        """Parts of this task that are missing, or have a failed step, for any of `runs`."""
        return self._those(runs, task, self._is_incomplete)

    def written(self, run: str) -> list[Path]:
        """The file of each part that is predicted; that of all parts once they are merged."""
        if self._is_merged(run):
            return [self.merged_path(run)] * len(self.numbers)
        return [path for number in self.numbers if (path := self._path(run, number)).exists()]

    def write(self, run: str, number: int, predictions: Sequence[Prediction], counts: AnswerCounts) -> None:
        """`counts`: of the answers in `predictions`."""
        path = self._path(run, number)
        path.unlink(missing_ok=True)  # a summary never stands beside earlier predictions
        write_checked(path.with_suffix(".json"), counts.to_json())
        write_predictions(path, predictions)

    def merge(self, run: str) -> Path:
        """Merges all parts into one predictions file; a merged run is not changed.

        Parts are removed unless a step failed: the run then counts as merged only when it is answered.
        """
        path = self.merged_path(run)
        if not self._is_merged(run):
            paths = [self._path(run, number) for number in self.numbers]
            write_predictions(path, (row for part in paths for row in read_predictions(part)))
            counts = sum((self._part_counts(run, number) for number in self.numbers), AnswerCounts(0, 0))
            write_checked(self._summary(run), counts.to_json())
        if not self.counts(run).failed:
            shutil.rmtree(self._folder(run), ignore_errors=True)
        return path

    def counts(self, run: str) -> AnswerCounts:
        """The sum over all parts, after `merge`."""
        predictions = self.merged_path(run)
        remedy = f"remove it and {predictions} and run the same command again to predict them again"
        return read_counts(self._summary(run), remedy)

    def merged_path(self, run: str) -> Path:
        return self.output / predictions_name(run)

    def _those(self, runs: Sequence[str], task: ArrayTask, is_one: Callable[[str, int], bool]) -> list[int]:
        unmerged = [run for run in runs if not self._is_merged(run)]
        return [number for number in task.items(self.numbers) if any(is_one(run, number) for run in unmerged)]

    def _is_incomplete(self, run: str, number: int) -> bool:
        path = self._path(run, number)
        return not path.exists() or bool(self._part_counts(run, number).failed)

    def _is_merged(self, run: str) -> bool:
        return self._summary(run).exists() and self.merged_path(run).exists() and not self.counts(run).failed

    def _folder(self, run: str) -> Path:
        return self.output / "parts" / run

    def _path(self, run: str, number: int) -> Path:
        return self._folder(run) / f"{number:05}.parquet"

    def _summary(self, run: str) -> Path:
        return self.output / "parts" / f"{run}.json"

    def _part_counts(self, run: str, number: int) -> AnswerCounts:
        path = self._path(run, number)
        remedy = f"remove it and {path.name} beside it and run the same command again to predict the part again"
        return read_counts(path.with_suffix(".json"), remedy)


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
