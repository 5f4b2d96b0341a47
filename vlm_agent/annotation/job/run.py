"""Fills a folder of annotated shards, alone or as a task of a job array."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from vlm_agent.agents.llm.calls import CallLimits, Calls
from vlm_agent.agents.llm.client import ChatEndpoint, retry_advice
from vlm_agent.annotation.annotator import Annotator, clean_text
from vlm_agent.annotation.edits import EditStore
from vlm_agent.annotation.job.estimate import estimate
from vlm_agent.annotation.job.finish import complete, summarise
from vlm_agent.annotation.job.settings import WORK, AnnotationSettings, ShardPlan, job, plan_of
from vlm_agent.annotation.job.shards import AnnotatedRow, Failure, ShardEntry, read_entry, write_shard
from vlm_agent.annotation.prompts import PlanPrompts, Prompts
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.jobs import ArrayTask
from vlm_agent.files.threads import ahead


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
    plan_prompts: PlanPrompts | None = None,
) -> None:
    """Writes `shards` with the texts of all steps to `output`; one `task` of a job array writes its share of the
    shards, and `finish` must follow after all tasks. An interrupted annotation is resumed, and no call is repeated.
    `plan_prompts`: needed if the settings have `plan` written.

    Raises DatasetError where `output` holds another annotation, a screen cannot be decoded, or texts are missing after
    all else is done; EndpointError if the endpoint cannot be used, and CostLimitError at `max_cost`.
    """
    dataset = ShardDataset(shards, settings.split, settings.subset)
    job(output).check_folder()
    if output.exists() and output.resolve() == Path(shards).resolve():
        raise DatasetError(f"{output} holds the shards to annotate; choose another --output")
    plan = plan_of(dataset, settings, prompts.digest, None if plan_prompts is None else plan_prompts.digest)
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
            plan_prompts,
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


class _Run:
    def __init__(
        self,
        dataset: ShardDataset,
        annotator: Annotator,
        calls: Calls,
        service: Service,
        output: Path,
        console: Console,
    ) -> None:
        self._dataset, self._annotator, self._calls = dataset, annotator, calls
        self._service, self._output, self._console = service, output, console
        self._position = {name: index for index, name in enumerate(dataset.ids)}

    def annotate(self, shards: Sequence[ShardPlan], max_tokens: int) -> list[Failure]:
        """Annotates the shards; returns what is missing."""
        if not shards:
            return []
        self._announce([self._position[name] for shard in shards for name in shard.episode_ids], max_tokens)
        failures: list[Failure] = []
        try:
            job(self._output).fill(
                {shard: shard.steps for shard in shards},
                lambda shard, report: failures.extend(self._annotate_shard(shard, report)),
                "steps",
                self._console,
            )
        finally:
            self._console.print(self._calls.spending(), highlight=False, soft_wrap=True)
        return failures

    def _announce(self, episodes: Sequence[int], max_tokens: int) -> None:
        expected = estimate(self._dataset, episodes, self._annotator, self._calls, max_tokens)
        self._console.print(
            f"{self._output}: {len(episodes):,} episodes to annotate; estimated: "
            f"{expected.in_words(self._service.limits.price)}",
            highlight=False,
            soft_wrap=True,
        )

    def _annotate_shard(self, shard: ShardPlan, report: Callable[[int], None]) -> list[Failure]:
        episodes = [self._position[name] for name in shard.episode_ids]
        with ahead(self._row, episodes, self._service.concurrency, self._calls.stop) as rows:
            return write_shard(
                self._output,
                shard,
                rows,
                EditStore(self._output / WORK),
                self._service.accept_missing,
                report,
                self._annotator.counted,
            )

    def _row(self, index: int) -> AnnotatedRow:
        row = self._dataset.row(index)
        return row, self._annotator.annotate(self._dataset.decoded(row))


def _write_failures(path: Path, failures: Sequence[Failure]) -> None:
    if not failures:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(failure), ensure_ascii=False) + "\n" for failure in failures)


def _incomplete(failures: Sequence[Failure], listed: Path) -> DatasetError:
    first = failures[0]
    steps = len({(failure.episode, failure.step) for failure in failures})
    advice = retry_advice((failure.reason for failure in failures), "run the same command again to ask for them")
    return DatasetError(
        f"{len(failures)} text(s) of {steps} step(s) are missing, and the rest is on disk ({listed} lists them; the "
        f"first: episode {first.episode}, step {first.step}, {first.text}: {clean_text(first.reason)}); "
        f"{advice}, or add --accept-missing to leave them empty"
    )
