"""Online evaluation: an agent does tasks on simulated phones, and what counts is whether they are done.

OUT/online_plan.json   what is evaluated; the same command again goes on where it was stopped, also with more tasks
OUT/<run>/00012/       a task's trace and result (see `runs.py`)
OUT/online.json        every number of every run, and every task
"""

import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.locks import locked, remove_partials
from vlm_agent.datasets.simulated_phone import SIZE
from vlm_agent.evaluation.online.runs import AT_ONCE, BASELINES, EXPERT, Player, play, read_result
from vlm_agent.evaluation.online.scores import online_scores
from vlm_agent.evaluation.online.table import online_tables
from vlm_agent.evaluation.online.tasks import SPLIT, OnlineTask, online_tasks
from vlm_agent.evaluation.parts import AGENT
from vlm_agent.evaluation.predict import CONTROLS, GREY_SCREENS, NO_HISTORY
from vlm_agent.evaluation.sources import Source

__all__ = ["AGENT", "AT_ONCE", "EXPERT", "ONLINE", "evaluate_online"]

ONLINE, PLAN = "online.json", "online_plan.json"
VERSION = 1

_LOG_SECONDS = 60.0


@dataclass(frozen=True)
class _Job:
    run: str
    task: OnlineTask
    output: Path

    @property
    def folder(self) -> Path:
        return self.output / self.run / f"{self.task.index:05d}"


def evaluate_online(
    source: Source,
    output: Path,
    console: Console,
    tasks: int = 100,
    seed: int = 0,
    controls: bool = True,
    workers: int = 1,
) -> dict:
    """Scores an agent on the first `tasks` of `seed`, with `controls` also without its senses, beside the expert and
    an agent that does nothing; returns what `online.json` then holds: {"about", "runs": {run: scores}, "tasks"}.

    `workers` phones are operated at once, by one agent; but for `cost`, results are the same for any number of them.
    Tasks that an earlier run into `output` has done are kept. Raises DatasetError where `output` holds something else.
    """
    runs = [AGENT, *(CONTROLS if controls else ()), *BASELINES]
    described = {
        "version": VERSION,
        "agent": source.described(),
        "language": source.language.model_dump(mode="json"),
        "split": SPLIT,
        "seed": seed,
        "size": list(SIZE),
        "runs": runs,
    }
    _hold_to_plan(output, described)
    jobs = [_Job(run, task, output) for run in runs for task in online_tasks(tasks, seed)]
    with locked(output / "lock", f"another process is evaluating into {output}; wait for it, or stop it"):
        remove_partials(output)
        _play(source, [job for job in jobs if read_result(job.folder) is None], workers, console)
        content = _content(jobs, runs, {"agent": source.place, **described, "tasks": tasks})
        with written_whole(output / ONLINE) as part:
            part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(*online_tables(content["runs"]))
    return content


def _play(source: Source, jobs: list[_Job], workers: int, console: Console) -> None:
    """Does what is left; loads the agent only where one of it is the agent's."""
    if not jobs:
        return
    players = dict(BASELINES)
    if any(job.run not in BASELINES for job in jobs):
        players |= _players(source)
    pool = ThreadPoolExecutor(workers)
    try:
        playing = [pool.submit(play, job.run, players[job.run], job.task, job.folder) for job in jobs]
        for task in _told(as_completed(playing), len(jobs), console):
            task.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _told(finished: Iterable[Future], count: int, console: Console) -> Iterator[Future]:
    """The same, with a bar on a terminal, and a line a minute in a log."""
    if console.is_terminal:
        yield from track(finished, "Acting", count, console=console, transient=True)
        return
    told = time.monotonic()
    for number, task in enumerate(finished, 1):
        yield task
        if time.monotonic() - told >= _LOG_SECONDS:
            told = time.monotonic()
            console.print(f"{number:,} of {count:,} tasks are done", highlight=False)


def _players(source: Source) -> dict[str, Player]:
    agent = source.load()
    return {
        AGENT: lambda _: agent,
        GREY_SCREENS: lambda _: agent.on_grey_screens(),
        NO_HISTORY: lambda _: agent.without_history(),
    }


def _content(jobs: Iterable[_Job], runs: list[str], about: dict) -> dict:
    results: dict[str, list[dict]] = {run: [] for run in runs}
    for job in jobs:
        results[job.run].append(read_result(job.folder))
    shared = ("task", "goal", "subset", "template", "memory", "expert_steps")
    tasks = [
        {key: together[0][key] for key in shared}
        | {"runs": {run: _outcome(one, run, index) for run, one in zip(runs, together, strict=True)}}
        for index, together in enumerate(zip(*results.values(), strict=True))
    ]
    return {"about": about, "runs": {run: online_scores(results[run]) for run in runs}, "tasks": tasks}


def _outcome(result: dict, run: str, index: int) -> dict:
    return {key: result[key] for key in ("success", "reached", "steps", "reason")} | {"trace": f"{run}/{index:05d}"}


def _hold_to_plan(output: Path, described: dict) -> None:
    path = output / PLAN
    if not path.exists():
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise DatasetError(f"{output} holds something that is no online evaluation; give an empty folder")
        with written_whole(path) as part:
            part.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        return
    try:
        there = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DatasetError(f"{path} is damaged ({error}); remove {output} and evaluate again") from None
    names = [name for name in dict.fromkeys((*there, *described)) if there.get(name) != described.get(name)]
    if names:
        lines = "\n".join(f"  {name}: {there.get(name)} there, {described.get(name)} now" for name in names)
        raise DatasetError(
            f"{output} holds an online evaluation that was made otherwise; give another folder, or the same "
            f"arguments:\n{lines}"
        )
