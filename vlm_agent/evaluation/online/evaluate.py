"""Online evaluation: an agent does tasks on simulated phones, and the score is its success rate.

OUT/online_plan.json   settings; run the same command again to resume, also with more tasks
OUT/online_tasks.json  how many tasks the newest command asked for
OUT/<run>/00012/       trace and result of a task (see `runs.py`)
OUT/online.json        every score of every run, and every task
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from vlm_agent.agents import ActsTogether, Agent, AgentSettings, NoAnswerError
from vlm_agent.agents.controls import CONTROLS, controlled, controls_of
from vlm_agent.agents.llm.client import retry_advice
from vlm_agent.agents.loading import load_agent, reported_spending
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.devices.acting.episode import limits_of
from vlm_agent.devices.acting.loop import answered_together
from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.task_sets import SetTask, TaskSet, read_task_set
from vlm_agent.evaluation.about import (
    AGENT,
    agent_identity,
    context_fact,
    controls_fact,
    elements_fact,
    names_in_tables,
)
from vlm_agent.evaluation.online.runs import AT_ONCE, BASELINES, EXPERT, is_done, play, read_result, task_turns
from vlm_agent.evaluation.online.scores import MEMORY, OVERALL, online_scores
from vlm_agent.evaluation.report.terminal import online_tables
from vlm_agent.files import parsing, read_json, write_checked, write_json
from vlm_agent.files.console import Progress, print_plain
from vlm_agent.files.jobs import Job, free_after_errors
from vlm_agent.files.threads import stoppable_pool
from vlm_agent.screens.understand import Readers

__all__ = ["AGENT", "AT_ONCE", "EXPERT", "ONLINE", "evaluate_online"]

ONLINE, PLAN, TASKS = "online.json", "online_plan.json", "online_tasks.json"
VERSION = 1
SAMPLE = 3
"""Tasks whose solutions an estimate of the cost is computed from."""


def read_tasks(output: Path) -> tuple[list[str], int | None]:
    """The runs of an online evaluation, and the number of tasks of each; None for one that did not record it."""
    runs = Job(output, "an online evaluation", PLAN).read_plan()["runs"]
    path = output / TASKS
    with parsing(path, "remove it"):
        return runs, int(read_json(path, "remove it")["tasks"]) if path.is_file() else None


@dataclass(frozen=True)
class Attempt:
    """Task number `index`, from 0, of one run; `name`: of the run in tables and traces."""

    run: str
    index: int
    task: SetTask
    output: Path
    long_screens: bool
    name: str
    reader: ScreenReader | None = None
    allow_purchases: bool = True

    @property
    def options(self) -> tuple:
        """The last arguments of `task_turns`."""
        return self.long_screens, self.reader, self.name, self.allow_purchases

    @property
    def folder(self) -> Path:
        return self.output / self.run / f"{self.index:05d}"


def evaluate_online(
    settings: AgentSettings,
    output: Path,
    console: Console,
    tasks: int = 100,
    seed: int = 0,
    controls: bool | Sequence[str] = True,
    workers: int = 1,
    long_screens: bool = False,
    readers: Readers | None = None,
    task_set: TaskSet | None = None,
    split: str = "test",
) -> dict:
    """Scores an agent on the first `tasks` tasks of `seed`, and under its `controls` (all, none or those named).

    The expert, if the set has one, and an agent that does nothing are scored for comparison. One agent operates
    `workers` phones at once: in common forward passes, if it can (`Agent.together`), else in threads. Except for
    `cost`, and for what rounding changes in mixed precision, the results do not depend on their number. Finished tasks
    in `output` are kept.

    `long_screens`: the agent sees each page as one tall picture. `readers`: the elements of screens are read from
    pixels. `split`: of the `task_set`, by default simulated phones.

    Returns the content of `online.json`: {"about", "runs", "tasks"}. Raises DatasetError if `output` holds something
    else, DeviceError for a split that the set does not have, more phones at once, a subset named like a row.
    """
    task_set = read_task_set() if task_set is None else task_set
    if task_set.at_once is not None and workers > task_set.at_once:
        raise DeviceError(
            f"--workers is {workers}, and the task set {task_set.task_set} has phones for {task_set.at_once} at once"
        )
    played = list(enumerate(task_set.tasks(tasks, seed, split)))
    if rows := sorted({task.subset for _, task in played} & {OVERALL, MEMORY}):
        raise DeviceError(f"subset {rows[0]} of the task set {task_set.task_set} is a row of every table; rename it")
    baselines = [run for run in BASELINES if run != EXPERT or task_set.has_expert]
    runs = [AGENT, *controls_of(settings.text_inputs, controls), *baselines]
    identity = {
        "version": VERSION,
        **agent_identity(settings, readers, runs),
        "split": split,
        "seed": seed,
        "runs": runs,
        "long_screens": long_screens,
        **task_set.model_dump(mode="json"),
    }
    job = Job(output, "an online evaluation", PLAN)
    job.write_or_verify_plan(identity)
    reader = None if readers is None else ScreenReader.of(readers)
    names = names_in_tables(runs, settings.run_label)
    buys = task_set.allow_purchases
    attempts = [Attempt(run, *task, output, long_screens, names[run], reader, buys) for run in runs for task in played]
    with free_after_errors(job), job.locked():
        left = [attempt for attempt in attempts if not is_done(attempt.folder)]
        begin = partial(write_json, output / TASKS, {"tasks": len(played)})
        _play(settings.in_output(output), left, workers, console, readers, begin)
        content = _content(attempts, runs, {"label": settings.run_label, **identity, "tasks": len(played)})
        write_checked(output / ONLINE, content)
    console.print(*online_tables({name: content["runs"][run] for run, name in names.items()}))
    own = content["runs"][AGENT][OVERALL]
    steps = round(own["steps"] * own["tasks"]) if own["tasks"] else 0
    facts = elements_fact(identity) | controls_fact(identity, runs) | context_fact(own.get("beyond_context", 0), steps)
    for fact, text in (facts | _other_facts(own)).items():
        print_plain(console, f"{fact}: {text}")
    return content


def _play(
    settings: AgentSettings,
    attempts: list[Attempt],
    workers: int,
    console: Console,
    readers: Readers | None,
    begin: Callable[[], object],
) -> None:
    """Runs the attempts; loads the agent only if one of them needs it. `begin` is called once it is loaded: a folder in
    which nothing was written is free for other settings."""
    if not attempts:
        begin()
        return
    agents: dict[str, Agent] = {}
    stop: Callable[[], object] = bool
    by_agent = [attempt for attempt in attempts if attempt.run not in BASELINES]
    with ExitStack() as stack:
        if by_agent:
            agent = load_agent(settings, console, readers)
            agents = {AGENT: agent} | {name: controlled(agent, control) for name, control in CONTROLS.items()}
            stop = agent.stop
            tasks = list({attempt.index: attempt.task for attempt in by_agent}.values())[:SAMPLE]
            steps = sum(limits_of(task.solution()).steps for task in tasks) * len(by_agent) // len(tasks)
            spending = reported_spending(
                agent, console, lambda: [one for task in tasks if (one := task.demonstration())], steps
            )
            stack.enter_context(spending)
        begin()
        _play_all(attempts, agents, workers, console, stop)


def _play_all(
    attempts: list[Attempt], agents: Mapping[str, Agent], workers: int, console: Console, stop: Callable[[], object]
) -> None:
    """Raises NoAnswerError at the end if the agent failed to answer in a task; all other tasks are finished.

    Other exceptions, and Ctrl-C, call `stop`, so that the tasks of other threads end early.
    """
    failed: list[NoAnswerError] = []
    with Progress(console, len(attempts), "tasks").shown() as progress:
        for error in _finished(attempts, agents, workers, stop):
            failed += [] if error is None else [error]
            progress.advance(1, "acting")
    if failed:
        raise NoAnswerError(
            f"the agent could not answer in {len(failed)} task(s); first error: {failed[0]}; "
            + retry_advice(map(str, failed), "run the same command again to repeat these tasks")
        )


def _finished(
    attempts: list[Attempt], agents: Mapping[str, Agent], workers: int, stop: Callable[[], object]
) -> Iterator[NoAnswerError | None]:
    """Plays the attempts; an item for each, which is the error of an agent that could not answer."""
    together = {run: acting for run, agent in agents.items() if (acting := agent.together()) is not None}
    for run, acting in together.items():
        yield from played_together([one for one in attempts if one.run == run], acting, workers)
    players = BASELINES | {run: (lambda _, agent=agent: agent) for run, agent in agents.items()}
    with stoppable_pool(workers, stop) as pool:
        pending = [
            pool.submit(play, one.run, players[one.run], one.task, one.folder, *one.options)
            for one in attempts
            if one.run not in together
        ]
        for attempt in as_completed(pending):
            try:
                attempt.result()
            except NoAnswerError as error:
                yield error
            else:
                yield None


def played_together(attempts: Iterable[Attempt], agent: ActsTogether, phones: int) -> Iterator[NoAnswerError | None]:
    """`_finished` on `phones` phones at once."""
    runs = (task_turns(one.run, one.task, one.folder, *one.options) for one in attempts)
    for _, result in answered_together(runs, agent, phones):
        yield result if isinstance(result, NoAnswerError) else None


def _content(attempts: Iterable[Attempt], runs: list[str], about: dict) -> dict:
    results: dict[str, list[dict]] = {run: [] for run in runs}
    for attempt in attempts:
        results[attempt.run].append(read_result(attempt.folder, attempt.task.name))
    shared = ("task", "goal", "subset", "template", "memory", "expert_steps")
    own = ("success", "reached", "ever_reached", "false_complete", "side_effects", "steps", "reason")
    tasks = []
    for index, of_task in enumerate(zip(*results.values(), strict=True)):
        outcomes = {
            run: {key: result[key] for key in own} | {"trace": f"{run}/{index:05d}"}
            for run, result in zip(runs, of_task, strict=True)
        }
        tasks.append({key: of_task[0][key] for key in shared} | {"runs": outcomes})
    return {"about": about, "runs": {run: online_scores(results[run]) for run in runs}, "tasks": tasks}


def _other_facts(row: Mapping) -> dict[str, str]:
    unjudged = {"tasks whose judge failed, which no score counts": f"{row.get('unjudged')}"}
    passed = {"pass@1, pass@2, …, %": ", ".join(f"{share:.1f}" for share in row.get("pass_at", ()))}
    return (unjudged if "unjudged" in row else {}) | (passed if "pass_at" in row else {})
