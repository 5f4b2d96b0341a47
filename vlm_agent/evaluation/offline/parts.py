"""Predictions in parts, written during an evaluation so that it can be resumed, and counts of their answers.

    OUT/parts/<run>/00012.parquet    the predictions of 16 episodes, each file written atomically
    OUT/parts/<run>/00012.json       the counts of their answers (`AnswerCounts`), written before the predictions
    OUT/parts/<run>.json             the sum over all parts: the run is merged, and its parts are removed. With failed
                                     steps the parts are kept, and the next evaluation predicts those with such a step
    OUT/predictions.parquet          all parts in order; predictions_<run>.parquet for other runs

The plan alone decides which episodes a part holds, so any process may write any part at any time.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vlm_agent.agents import Answer
from vlm_agent.agents.llm.completion import CUT_OFF, DURING_REASONING, EMPTY, REASONING_ALONE, TOOL_CALL
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.about import LISTED, context_fact
from vlm_agent.evaluation.offline.plan import job, predictions_name
from vlm_agent.evaluation.predictions import Prediction, read_predictions, write_predictions
from vlm_agent.files import file_lock, parsing, read_checked, write_checked
from vlm_agent.files.jobs import ArrayTask
from vlm_agent.sentences.trajectory import unwritable_line

EPISODES_PER_PART = 16

ALL = "all"
"""The number of replies, among those with a note."""

_REMEDIES = {
    "raise max_tokens in the agent file": (CUT_OFF,),
    "turn the model's thinking off in its server": (DURING_REASONING, REASONING_ALONE),
    "serve the model without a parser of tool calls": (TOOL_CALL,),
}
"""What to do, with the words of notes for which it helps."""


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of the answers of one part of a run, or of all; the fields are the keys of their JSON file.

    `steps`: answers. `settled`: those that needed no decoding; None if the agent does not report it. `unwritable`: a
    line for each demonstrated action that the agent's tokenizer cannot write. `failed`: a line for each step that the
    agent failed to answer; its prediction is a wrong answer. `unread`: a line for each step whose replies could not be
    read. `references`: counts of steps and episodes, and of those whose nearest reference has their goal; empty for an
    agent without references. `fenced`: actions that were read from a code fence. `repaired`: replies that were
    requested once more. `beyond_context`: answers beyond the context of the agent's model. `replies`: those of a served
    model by note (`agents/llm/completion.py`), and `ALL` of them; empty of any other agent.
    """

    steps: int
    settled: int | None
    unwritable: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    references: dict[str, int] = field(default_factory=dict)
    fenced: int = 0
    repaired: int = 0
    beyond_context: int = 0
    replies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, episodes: Sequence[Episode], answers_by_episode: Sequence[Sequence[Answer]]) -> "AnswerCounts":
        answered = [
            (episode, index, answer)
            for episode, answers in zip(episodes, answers_by_episode, strict=True)
            for index, answer in enumerate(answers)
        ]
        from_prefill = [answer.usage.from_prefill for _, _, answer in answered]
        failed, unread = (
            [
                f"episode {episode.id}, step {index}: {reason}"
                for episode, index, answer in answered
                if (reason := why(answer)) is not None
            ]
            for why in (lambda answer: answer.failed, lambda answer: answer.diagnostics.unread)
        )
        return cls(
            steps=len(answered),
            settled=None if None in from_prefill else sum(map(bool, from_prefill)),
            unwritable=[
                unwritable_line(episode.id, index, episode.steps[index].action)
                for episode, index, answer in answered
                if answer.diagnostics.unwritable
            ],
            failed=failed,
            unread=unread,
            references=_references(answers_by_episode),
            fenced=sum(answer.diagnostics.fenced for _, _, answer in answered),
            repaired=sum(answer.diagnostics.repaired for _, _, answer in answered),
            beyond_context=sum(answer.diagnostics.beyond_context for _, _, answer in answered),
            replies=_replies(answer for _, _, answer in answered),
        )

    def __add__(self, other: "AnswerCounts") -> "AnswerCounts":
        return AnswerCounts(
            **{one.name: _sum(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        )

    def to_json(self) -> dict[str, Any]:
        """The content of the file; optional counts of 0 are omitted."""
        return {key: count for key, count in asdict(self).items() if count or key in ("steps", "settled")}

    def in_metrics(self) -> dict[str, Any]:
        """What `metrics.json` says about the answers; counts of 0 are omitted."""
        unwritable = {"count": len(self.unwritable), "first": self.unwritable[:LISTED]} if self.unwritable else None
        counted = {
            "unwritable_actions": unwritable,
            "failed_steps": self.failed,
            "unread_steps": self.unread,
            "repaired_replies": self.repaired,
            "fenced_answers": self.fenced,
            "beyond_context": self.beyond_context,
            "references": self.references,
            "replies": self.replies if len(self.replies) > 1 else {},
        }
        share = None if self.settled is None else self.settled / self.steps
        return {"settled_by_prefill": share} | {key: one for key, one in counted.items() if one}

    def facts(self) -> dict[str, str]:
        """Lines at the top of the report, for counts that are not 0."""
        return dict(self._facts()) | self.printed_facts()

    def printed_facts(self) -> dict[str, str]:
        """The `facts` that the terminal shows too."""
        return context_fact(self.beyond_context, self.steps) | self._references_fact() | self._replies_fact()

    def _replies_fact(self) -> dict[str, str]:
        """Empty if every reply has a text, and was requested as usual."""
        notes = {note: count for note, count in self.replies.items() if note != ALL}
        if not notes:
            return {}
        total = self.replies[ALL]
        empty = {note.removeprefix(f"{EMPTY}, "): count for note, count in notes.items() if note.startswith(EMPTY)}
        parts = [f"{count:,} of {total:,} {note}" for note, count in notes.items() if not note.startswith(EMPTY)]
        if empty:
            causes = ", ".join(f"{count:,} {cause}" for cause, count in empty.items())
            parts.insert(0, f"{sum(empty.values()):,} of {total:,} are empty: {causes}")
        remedies = [
            remedy for remedy, kinds in _REMEDIES.items() if any(words in note for note in notes for words in kinds)
        ]
        advice = [" or ".join(remedies)] if remedies else []
        return {"replies of the served model": "; ".join([*parts, *advice])}

    def _references_fact(self) -> dict[str, str]:
        """Empty for an agent without references."""
        if not self.references:
            return {}
        shares = []
        for of in ("steps", "episodes"):
            same, total = self.references.get(f"{of}_with_an_identical_goal", 0), self.references[of]
            shares.append(f"{same:,} of {total:,} {of} ({100 * same / total:.1f} %)")
        return {"nearest reference with an identical goal": ", ".join(shares)}

    def _facts(self) -> Iterator[tuple[str, str]]:
        if self.failed:
            yield "failed steps", f"{len(self.failed):,}, counted as wrong; first: {self.failed[0]}"
        if self.repaired:
            unread = self.unread
            still = f"; {len(unread):,} steps without an action all the same; first: {unread[0]}" if unread else ""
            yield "replies requested once more", f"{self.repaired:,}, because they could not be read{still}"
        if self.fenced:
            yield "answers in a code fence", f"{self.fenced:,}, read as their content"


def _sum(one: Any, other: Any) -> Any:
    """None if one of the counts is unknown."""
    if one is None or other is None:
        return None
    return dict(Counter(one) + Counter(other)) if isinstance(one, dict) else one + other


def read_counts(path: Path, remedy: str) -> AnswerCounts:
    """The counts in a JSON file. Raises DatasetError naming a damaged file."""
    content = read_checked(path, remedy, AnswerCounts)
    with parsing(path, remedy):
        return AnswerCounts(**content)


def _replies(answers: Iterable[Answer]) -> dict[str, int]:
    """How many replies have each note, and how many there are."""
    notes = [reply for answer in answers for reply in answer.diagnostics.replies]
    return {ALL: len(notes)} | Counter(note for reply in notes for note in reply) if notes else {}


def _references(answers_by_episode: Sequence[Sequence[Answer]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for answers in answers_by_episode:
        found = [answer.diagnostics.reference_has_goal for answer in answers]
        known = [has_goal for has_goal in found if has_goal is not None]
        counts["steps"] += len(known)
        counts["episodes"] += bool(known)
        counts["steps_with_an_identical_goal"] += sum(known)
        counts["episodes_with_an_identical_goal"] += any(known)
    return dict(counts) if counts["steps"] else {}


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

    def missing(self, run: str) -> list[int]:
        """Parts that are not written; a merged run is complete."""
        return [] if self._is_merged(run) else [one for one in self.numbers if not self._path(run, one).exists()]

    def incomplete(self, run: str, task: ArrayTask) -> list[int]:
        """Parts of this task that are missing, or have a failed step."""
        if self._is_merged(run):
            return []
        missing = self.missing(run)
        return [one for one in task.items(self.numbers) if one in missing or self._part_counts(run, one).failed]

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
