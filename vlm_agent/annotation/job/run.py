"""Fills a folder of annotated shards, alone or as a task of a job array."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from rich.console import Console

from vlm_agent.agents.llm.calls import CallLimits, Calls
from vlm_agent.agents.llm.client import ChatEndpoint, retry_advice
from vlm_agent.agents.llm.cost import Expense
from vlm_agent.annotation.annotator import PLAN, TYPICAL, WAITS, Annotator, clean_text
from vlm_agent.annotation.edits import EditStore
from vlm_agent.annotation.job.finish import complete, summarise
from vlm_agent.annotation.job.settings import WORK, AnnotationSettings, ShardPlan, job, plan_of
from vlm_agent.annotation.job.shards import AnnotatedRow, Failure, ShardEntry, read_entry, write_shard
from vlm_agent.annotation.prompts import Messages, Prompts
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.jobs import ArrayTask
from vlm_agent.files.threads import ahead

SAMPLED = 5
"""Episodes whose requests are written for the estimate of the cost."""

_WORDS = {"screen": 75, "action": 8, "think": 45, "result": 45, PLAN: 60}
_TOKENS_PER_WORD = 1.4
"""Typical lengths of replies, from Android in the Zoo: descriptions of 80 to 120 words, thoughts of 30 to 70, results
of 20 to 80. The shipped prompts ask for somewhat less. A plan of six lines has about 60 words."""


@dataclass(frozen=True)
class Service:
    """How to ask; nothing here decides the texts. `concurrency`: episodes at a time, each with one call at a time.

    `accept_missing`: leaves texts empty whose calls fail, in place of an incomplete annotation.
    """

    endpoint: str
    limits: CallLimits = field(default_factory=CallLimits)
    concurrency: int = 8
    accept_missing: bool = False


def annotate(
    shards: Path,
    settings: AnnotationSettings,
    prompts: Prompts,
    service: Service,
    output: Path,
    console: Console,
    task: ArrayTask | None = None,
) -> None:
    """Writes `shards` with the texts of all steps to `output`; one `task` of a job array writes its share of the
    shards, and `finish` must follow after all tasks. An interrupted annotation is resumed, and no call is repeated.

    Raises DatasetError where `output` holds another annotation, a screen cannot be decoded, or texts are missing after
    all else is done; EndpointError if the endpoint cannot be used, and CostLimitError at `max_cost`.
    """
    dataset = ShardDataset(shards, settings.split, settings.subset)
    job(output).check_folder()
    if output.exists() and output.resolve() == Path(shards).resolve():
        raise DatasetError(f"{output} holds the shards to annotate; choose another --output")
    plan = plan_of(dataset, settings, prompts)
    chat = ChatEndpoint(service.endpoint, settings.model)
    with job(output).started(plan.content(), task):
        calls = Calls(chat, output / WORK / "calls", service.limits, is_patient=service.accept_missing)
        annotator = Annotator(
            prompts,
            lambda _, messages: calls.completion(messages, settings.max_tokens).answer,
            settings.texts,
            settings.replace,
            service.accept_missing,
            lambda messages: calls.discard(messages, settings.max_tokens),
        )
        mine = plan.shards if task is None else task.items(plan.shards)
        waiting = [shard for shard in mine if _is_open(read_entry(output, shard), service)]
        failures = _Run(dataset, annotator, calls, service, output, console).annotate(waiting, settings.max_tokens)
        listed = output / ("failed.jsonl" if task is None else f"failed-{task.index}-of-{task.count}.jsonl")
        _write_failures(listed, failures)
        if failures and not service.accept_missing:
            raise _incomplete(failures, listed)
        if task is None:
            for old in output.glob("failed-*-of-*.jsonl"):
                old.unlink()
            complete(output, plan)
    if task is None:
        summarise(output, console)
        return
    missing = sum(read_entry(output, shard) is None for shard in plan.shards)
    task.report(console, missing, f"of {len(plan.shards)} shard(s)")


def _is_open(entry: ShardEntry | None, service: Service) -> bool:
    """Whether a shard is to be annotated. Accepted gaps are asked for again, unless gaps are accepted."""
    return entry is None or (entry.missing > 0 and not service.accept_missing)


@dataclass(frozen=True)
class _Run:
    dataset: ShardDataset
    annotator: Annotator
    calls: Calls
    service: Service
    output: Path
    console: Console

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.dataset.ids)}

    def annotate(self, shards: Sequence[ShardPlan], max_tokens: int) -> list[Failure]:
        """Annotates the shards; returns what is missing."""
        if not shards:
            return []
        episodes = [self._position[name] for shard in shards for name in shard.episode_ids]
        expected = self._estimate(episodes, max_tokens)
        self.console.print(
            f"{self.output}: {len(episodes):,} episodes to annotate; estimated: "
            f"{expected.in_words(self.service.limits.price)}",
            highlight=False,
            soft_wrap=True,
        )
        failures: list[Failure] = []
        try:
            job(self.output).fill(
                {shard: shard.steps for shard in shards},
                lambda shard, report: failures.extend(self._annotate_shard(shard, report)),
                "steps",
                self.console,
            )
        finally:
            self.console.print(self.calls.spending(), highlight=False, soft_wrap=True)
        return failures

    def _estimate(self, episodes: Sequence[int], max_tokens: int) -> Expense:
        """The calls and tokens of these episodes, from `SAMPLED` of them; requests that are on disk cost nothing."""
        total, steps = Expense(), 0

        def ask(name: str, messages: Messages) -> str:
            nonlocal total
            if (reply := self.calls.stored(messages, max_tokens)) is not None:
                return reply.answer
            written = min(round(_WORDS[name] * _TOKENS_PER_WORD), max_tokens)
            total += self.calls.expected(messages, max_tokens, written)
            return TYPICAL if name == PLAN else " ".join(["word"] * _WORDS[name])

        sampler = replace(self.annotator, ask=ask)
        for index in sorted({episodes[len(episodes) * number // SAMPLED] for number in range(SAMPLED)}):
            steps += len(sampler.annotate(self.dataset[index]))
        return total.times(sum(len(self.dataset.screen_sizes[index]) for index in episodes) / steps)

    def _annotate_shard(self, shard: ShardPlan, report: Callable[[int], None]) -> list[Failure]:
        episodes = [self._position[name] for name in shard.episode_ids]
        with ahead(self._row, episodes, self.service.concurrency, self.calls.stop) as rows:
            return write_shard(
                self.output,
                shard,
                rows,
                EditStore(self.output / WORK),
                self.service.accept_missing,
                report,
                self.annotator.counted,
            )

    def _row(self, index: int) -> AnnotatedRow:
        row = self.dataset.row(index)
        return row, self.annotator.annotate(self.dataset.decoded(row))


def _write_failures(path: Path, failures: Sequence[Failure]) -> None:
    if not failures:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(failure), ensure_ascii=False) + "\n" for failure in failures)


def _incomplete(failures: Sequence[Failure], listed: Path) -> DatasetError:
    first = failures[0]
    steps = len({(failure.episode, failure.step) for failure in failures})
    causes = (failure.reason for failure in failures if not failure.reason.startswith(WAITS))
    advice = retry_advice(causes, "run the same command again to ask for them")
    return DatasetError(
        f"{len(failures)} text(s) of {steps} step(s) are missing, and the rest is on disk ({listed} lists them; the "
        f"first: episode {first.episode}, step {first.step}, {first.text}: {clean_text(first.reason)}); "
        f"{advice}, or add --accept-missing to leave them empty"
    )
