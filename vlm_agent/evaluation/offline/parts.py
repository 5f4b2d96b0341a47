"""Predictions in parts, written during an evaluation so that it can be resumed.

    OUT/parts/<run>/00012.parquet    the predictions of 16 episodes, each file written atomically
    OUT/parts/<run>/00012.json       how many of their steps needed no decoding, the demonstrated actions that the
                                     agent's tokenizer cannot write, and the steps that the agent failed to answer;
                                     written before the predictions
    OUT/parts/<run>.json             the sum over all parts: the run is merged, and its parts are removed. With failed
                                     steps the parts are kept, and the next evaluation predicts those with such a step
    OUT/predictions.parquet          all parts in order; predictions_<run>.parquet for other runs

The plan alone decides which episodes a part holds, so any process may write any part at any time.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.checked_json import read_checked, write_checked
from vlm_agent.evaluation.offline.plan import job, predictions_name
from vlm_agent.evaluation.predictions import Prediction, read_predictions, write_predictions
from vlm_agent.files import file_lock
from vlm_agent.jobs import ArrayTask

EPISODES_PER_PART = 16

_UNWRITABLE, _FAILED, _UNREAD, _REPAIRED, _FENCED = "unwritable", "failed", "unread", "repaired", "fenced"
_REFERENCES = "references"


@dataclass
class _Summary:
    """What a summary of predictions must hold. `settled`: the steps that needed no decoding."""

    steps: int
    settled: int | None
    unwritable: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    repaired: int = 0
    fenced: int = 0
    references: dict[str, int] = field(default_factory=dict)


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

    def write(
        self,
        run: str,
        number: int,
        predictions: Sequence[Prediction],
        unwritable: Sequence[str] = (),
        failed: Sequence[str] = (),
        unread: Sequence[str] = (),
        repaired: int = 0,
        references: Counter[str] | None = None,
        fenced: int = 0,
    ) -> None:
        """`unwritable`: a line for each demonstrated action that the agent's tokenizer cannot write. `failed`: a line
        for each step that the agent failed to answer; its prediction is a wrong answer. `unread`: a line for each step
        whose replies could not be read. `repaired`: replies that were requested once more. `references`: counts of
        steps and episodes, and of those whose nearest reference has their goal; None for an agent without references.
        `fenced`: actions that were read from a code fence.
        """
        path = self._path(run, number)
        path.unlink(missing_ok=True)  # a summary never stands beside earlier predictions
        from_prefill = [row.usage.from_prefill for row in predictions]
        count = None if None in from_prefill else sum(map(bool, from_prefill))
        summary: dict[str, Any] = {"steps": len(predictions), "settled": count}
        lines = {_UNWRITABLE: unwritable, _FAILED: failed, _UNREAD: unread}
        summary |= {key: list(listed) for key, listed in lines.items() if listed}
        summary |= {_REFERENCES: dict(references)} if references else {}
        summary |= {_FENCED: fenced} if fenced else {}
        write_checked(path.with_suffix(".json"), summary | ({_REPAIRED: repaired} if repaired else {}))
        write_predictions(path, predictions)

    def merge(self, run: str) -> Path:
        """Merges all parts into one predictions file; a merged run is not changed.

        Parts are removed unless a step failed: the run then counts as merged only when it is answered.
        """
        path = self.merged_path(run)
        if not self._is_merged(run):
            paths = [self._path(run, number) for number in self.numbers]
            write_predictions(path, (row for part in paths for row in read_predictions(part)))
            summaries = [self._part_summary(run, number) for number in self.numbers]
            from_prefill = [summary["settled"] for summary in summaries]
            total = None if None in from_prefill else sum(from_prefill)
            steps = {"steps": sum(one["steps"] for one in summaries), "settled": total}
            keys = (_UNWRITABLE, _FAILED, _UNREAD)
            lines = {key: [line for one in summaries for line in one.get(key, ())] for key in keys}
            merged = steps | {key: listed for key, listed in lines.items() if listed}
            repaired = sum(one.get(_REPAIRED, 0) for one in summaries)
            references = sum((Counter(one.get(_REFERENCES, {})) for one in summaries), Counter[str]())
            merged |= {_REFERENCES: dict(references)} if references else {}
            fenced = sum(one.get(_FENCED, 0) for one in summaries)
            merged |= {_FENCED: fenced} if fenced else {}
            write_checked(self._summary(run), merged | ({_REPAIRED: repaired} if repaired else {}))
        if not self.failed(run):
            shutil.rmtree(self._folder(run), ignore_errors=True)
        return path

    def share_from_prefill(self, run: str) -> float | None:
        """The share of a merged run's steps that needed no decoding; None if the agent does not report it."""
        summary = self._run_summary(run)
        return None if summary["settled"] is None else summary["settled"] / summary["steps"]

    def unwritable(self, run: str) -> list[str]:
        """The lines of `write` after `merge`."""
        return self._lines(run, _UNWRITABLE)

    def failed(self, run: str) -> list[str]:
        """The lines of `write` after `merge`."""
        return self._lines(run, _FAILED)

    def unread(self, run: str) -> list[str]:
        """The lines of `write` after `merge`."""
        return self._lines(run, _UNREAD)

    def repaired(self, run: str) -> int:
        """The sum of `write`'s counts after `merge`."""
        return self._run_summary(run).get(_REPAIRED, 0)

    def fenced(self, run: str) -> int:
        """The sum of `write`'s counts after `merge`."""
        return self._run_summary(run).get(_FENCED, 0)

    def references(self, run: str) -> dict[str, int]:
        """The sum of `write`'s counts after `merge`; empty for an agent without references."""
        return self._run_summary(run).get(_REFERENCES, {})

    def merged_path(self, run: str) -> Path:
        return self.output / predictions_name(run)

    def _those(self, runs: Sequence[str], task: ArrayTask, is_one: Callable[[str, int], bool]) -> list[int]:
        unmerged = [run for run in runs if not self._is_merged(run)]
        return [number for number in task.items(self.numbers) if any(is_one(run, number) for run in unmerged)]

    def _is_incomplete(self, run: str, number: int) -> bool:
        path = self._path(run, number)
        return not path.exists() or _FAILED in self._part_summary(run, number)

    def _lines(self, run: str, key: str) -> list[str]:
        return self._run_summary(run).get(key, [])

    def _is_merged(self, run: str) -> bool:
        return self._summary(run).exists() and self.merged_path(run).exists() and not self.failed(run)

    def _folder(self, run: str) -> Path:
        return self.output / "parts" / run

    def _path(self, run: str, number: int) -> Path:
        return self._folder(run) / f"{number:05}.parquet"

    def _summary(self, run: str) -> Path:
        return self.output / "parts" / f"{run}.json"

    def _run_summary(self, run: str) -> dict[str, Any]:
        predictions = self.merged_path(run)
        remedy = f"remove it and {predictions} and run the same command again to predict them again"
        return read_checked(self._summary(run), remedy, _Summary)

    def _part_summary(self, run: str, number: int) -> dict[str, Any]:
        path = self._path(run, number)
        remedy = f"remove it and {path.name} beside it and run the same command again to predict the part again"
        return read_checked(path.with_suffix(".json"), remedy, _Summary)


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
