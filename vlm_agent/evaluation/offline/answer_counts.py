"""What an evaluation counts about the answers of a run, beside their scores."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.agents import Answer
from vlm_agent.agents.llm.completion import CUT_OFF, DURING_REASONING, EMPTY, REASONING_ALONE, TOOL_CALL
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.identity import context_fact
from vlm_agent.files import parsing, read_checked
from vlm_agent.sentences.trajectory import unwritable_line

LISTED = 20
"""Unwritable actions in metrics.json; all are counted."""

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
        """The counts of the answers to every step of `episodes`."""
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
            steps=self.steps + other.steps,
            settled=None if self.settled is None or other.settled is None else self.settled + other.settled,
            unwritable=self.unwritable + other.unwritable,
            failed=self.failed + other.failed,
            unread=self.unread + other.unread,
            references=dict(Counter(self.references) + Counter(other.references)),
            fenced=self.fenced + other.fenced,
            repaired=self.repaired + other.repaired,
            beyond_context=self.beyond_context + other.beyond_context,
            replies=dict(Counter(self.replies) + Counter(other.replies)),
        )

    @property
    def share_from_prefill(self) -> float | None:
        """The share of steps that needed no decoding; None if the agent does not report it."""
        return None if self.settled is None else self.settled / self.steps

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
        return {"settled_by_prefill": self.share_from_prefill} | {key: one for key, one in counted.items() if one}

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
            unread, still = self.unread, ""
            if unread:
                still = f"; {len(unread):,} steps without an action all the same; first: {unread[0]}"
            yield "replies requested once more", f"{self.repaired:,}, because they could not be read{still}"
        if self.fenced:
            yield "answers in a code fence", f"{self.fenced:,}, read as their content"


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
