"""Runs a comparison, or one stage of it; killed at any time, the same command resumes.

OUT/plan.json             what decides the results: the comparison file without its seeds, agents, words and the sizes
                          that it does not use, the agents from whose prompts the served model learns, the content of
                          its recipe and benchmark
OUT/plans/AGENT/plan.json an agent, without what is only shown, and the content of its recipe or agent file
OUT/stages/               what ran: command, status, seconds, peak memory of each stage (records.py)
OUT/logs/                 the output of each stage
OUT/comparison.json       the table and everything on the page
OUT/comparison.html

Another comparison is refused. The contents in plans are those of the files when the first command ran, and are compared
before every stage: an edited file is another comparison. Files that these files name, such as prompts, are not
compared. Seeds and agents can be added: every stage belongs to one agent and seed. An agent that prompts the served
model cannot, because that model learns from the prompts of all of them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.agents.llm.prompted import OF_THE_SERVER
from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.shards.dataset import MANIFEST, manifest_digest
from vlm_agent.evaluation.benchmark import read_benchmark
from vlm_agent.evaluation.comparison.estimate import hours_of
from vlm_agent.evaluation.comparison.execution import Runner
from vlm_agent.evaluation.comparison.records import Records
from vlm_agent.evaluation.comparison.settings import ComparisonError
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, Stage, Stages
from vlm_agent.files import write_json
from vlm_agent.files.console import print_plain
from vlm_agent.files.jobs import Job, differences
from vlm_agent.models.run_layout import FINISHED, MERGED
from vlm_agent.recipe.yaml_file import find_shipped, read_mapping

JSON, PAGE = "comparison.json", "comparison.html"

Needs = Sequence[tuple[Stage, Sequence[Stage]]]
"""Stages in their order, each with those whose results it reads."""


def compare(stages: Stages, console: Console) -> dict[str, Any]:
    """Runs the stages that are not done, and returns the content of `comparison.json`.

    Raises ComparisonError at the end if some agents have no result; all others are compared. DatasetError if the folder
    holds another comparison, or another process writes to it. Stopped after SIGTERM or SIGUSR1.
    """
    all_stages = stages.with_needs()  # reads the recipes: a mistake in one must not become part of the plan
    write_or_verify(stages)
    job, records = job_of(stages), Records(stages.layout.output)
    records.note(stage for stage, _ in all_stages)
    with job.locked(), Runner(stages, records, console) as runner:
        for number, (stage, needs) in enumerate(all_stages, 1):
            if records.is_done(stage) or not all(map(records.is_done, needs)):
                continue
            verify(stages)  # a stage reads files that may have been edited while others ran
            runner.run(stage, f"[{number}/{len(all_stages)}] ")
        return _write_results(stages, all_stages, records, console)


def run_stage(stages: Stages, name: str, console: Console) -> int:
    """Runs one stage unless it is done, and returns the status of its command. Stages that do not need each other may
    run at the same time, on several machines with a shared file system. Waits for another process that runs the stage.

    Raises ComparisonError for an unknown name and where a stage that it needs is not done, DatasetError where another
    process runs the whole comparison, Stopped after SIGTERM or SIGUSR1.
    """
    all_stages = {stage.name: (stage, needs) for stage, needs in stages.with_needs()}
    if name not in all_stages:
        raise ComparisonError(f"the comparison has no stage {name}; it has {', '.join(all_stages)}")
    stage, needs = all_stages[name]
    job, records = job_of(stages), Records(stages.layout.output)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    write_or_verify(stages)
    records.note(one for one, _ in all_stages.values())
    with job.locked(shared=True), Runner(stages, records, console) as runner, records.locked(stage, say):
        if records.is_done(stage):
            say(f"{name} is done; nothing to do")
            return 0
        missing = [needed for needed in needs if not records.is_done(needed)]
        if missing:
            raise ComparisonError(f"{name} needs earlier stages: {'; '.join(map(records.why_not_done, missing))}")
        return runner.run(stage)


def report(stages: Stages, console: Console) -> dict[str, Any]:
    """Writes the table of what is done, without running a stage; returns and raises as `compare` does."""
    all_stages = stages.with_needs()
    write_or_verify(stages)
    with job_of(stages).locked(shared=True):
        return _write_results(stages, all_stages, Records(stages.layout.output), console)


def listing(stages: Stages, gpu: str | None = None) -> Iterator[str]:
    """A line for each stage, in an order in which each comes after those that it needs, separated by tabs: name, number
    of GPUs, done or open, names of the stages that it needs (commas; - for none), the file or folder that it writes;
    with the name of a `gpu` also the hours that it is estimated to take (estimate.py).

    Writes nothing. Raises DatasetError if the folder holds another comparison.
    """
    verify(stages)
    records = Records(stages.layout.output)
    for stage, needs in stages.with_needs():
        names = ",".join(needed.name for needed in needs) or "-"
        state = "done" if records.is_done(stage) else "open"
        hours = [] if gpu is None else [hours_of(stage, stages, gpu)]
        yield "\t".join((stage.name, str(stage.gpus), state, names, str(stage.output), *hours))


def _write_results(stages: Stages, all_stages: Needs, records: Records, console: Console) -> dict[str, Any]:
    failed = _without_result(all_stages, records)
    why = "".join(f"\n  {key}, seed {seed}: {reason}" for (key, seed), reason in failed.items())
    remedy = f"to retry, run the comparison (not --report). What failed:{why}"
    if len(failed) == len({stage.owner for stage, _ in all_stages if stage.kind == OFFLINE}):
        raise ComparisonError(f"no agent has a result; {remedy}")
    from vlm_agent.evaluation.comparison.page import print_table, write_page
    from vlm_agent.evaluation.comparison.results import results_of

    content = results_of(stages, records.by_stage(stages), failed)
    output = stages.layout.output
    write_json(output / JSON, content)
    write_page(output / PAGE, content, stages.layout.shards)
    print_table(content, console)
    print_plain(console, f"Wrote {output / PAGE} and {output / JSON}")
    if failed:
        raise ComparisonError(f"some agents have no result; {remedy}")
    return content


def _without_result(all_stages: Needs, records: Records) -> dict[tuple[str, int], str]:
    """For each agent and seed that is not scored offline and online, the stage that failed first, and how."""
    why: dict[str, str] = {}
    failed: dict[tuple[str, int], str] = {}
    for stage, needs in all_stages:
        if records.is_done(stage):
            continue
        inherited = [why[needed.name] for needed in needs if needed.name in why]
        why[stage.name] = inherited[0] if inherited else records.why_not_done(stage)
        if stage.owner is not None and stage.kind in (OFFLINE, ONLINE):
            failed.setdefault(stage.owner, why[stage.name])
    return failed


_SHOWN = {"name", "paper", "note"}
"""Keys of an agent that change no result."""

_FILES = "files"
"""The key of the content of files, by their path."""


def job_of(stages: Stages) -> Job:
    return Job(stages.layout.output, "a comparison")


def write_or_verify(stages: Stages) -> None:
    """Raises DatasetError if the folder holds another comparison, an agent of the same key with other settings, or if
    the shards of the user are not a finished conversion; then nothing is written, for no agent. Raises ComparisonError
    for a recipe or an agent file that cannot be read."""
    if stages.layout.user_shards is not None:
        manifest_digest(stages.layout.user_shards)
    for job, plan in verify(stages):
        if not job.plan_path.exists():
            job.write_or_verify_plan(plan)


def verify(stages: Stages) -> list[tuple[Job, dict[str, Any]]]:
    """The plans of this comparison, which reads its files once. Raises what `write_or_verify` does, writes nothing."""
    job = job_of(stages)
    job.check_folder()
    jobs = [(job, _plan(stages)), *_agents(stages)]
    for one, plan in jobs:
        if one.plan_path.exists():
            one.write_or_verify_plan(plan, differences)
    return jobs


def _plan(stages: Stages) -> dict[str, Any]:
    shards, endpoint = stages.layout.user_shards, stages.endpoint
    comparison = stages.comparison
    agents = comparison.agents
    served = comparison.served if stages.is_served_here else None
    benchmark = stages.layout.benchmark(comparison)
    recipes = None if served is None else served.recipe, stages.sizes.recipe
    if benchmark is not None:  # a mistake in its keys must not wait for the first evaluation
        read_benchmark(find_shipped(benchmark), {"shards": stages.layout.shards})
    unused = "sizes" if stages.quick else "quick"
    return {
        "comparison": comparison.model_dump(mode="json", exclude={"seeds", "agents", "name", "about", unused}),
        "served_agents": sorted(key for key, agent in agents.items() if agent.served and stages.is_served_here),
        "quick": stages.quick,
        "shards": shards and (manifest_digest(shards) if (shards / MANIFEST).is_file() else "not converted"),
        "benchmark": None if shards is None else str(stages.layout.user_benchmark),
        "served_model": None if endpoint is None else endpoint.model,
        _FILES: _contents(*recipes, benchmark),
    }


def _agents(stages: Stages) -> Iterator[tuple[Job, dict[str, Any]]]:
    for key, agent in stages.comparison.agents.items():
        job = Job(stages.layout.output / "plans" / key, f"the agent {key} of a comparison")
        files: dict[str, Any] = _contents(agent.recipe, agent.agent)
        if agent.run is not None and Path(agent.run).is_dir():
            files |= _records(key, Path(agent.run))
        if agent.agent is not None:  # a mistake in its keys must not become part of a plan
            agent_settings(str(find_shipped(agent.agent)), overrides=stages.overrides_of(agent))
        yield job, agent.model_dump(mode="json", exclude=_SHOWN) | {_FILES: files}


def _records(key: str, run: Path) -> dict[str, str]:
    """SHA-256 of the records of a run, which hold the digests of all its files. Raises ComparisonError without one."""
    found = [record for name in (FINISHED, MERGED) if (record := run / name).is_file()]
    if not found:
        raise ComparisonError(f"agents.{key}.run: {run} is not finished")
    return {str(record): hashlib.sha256(record.read_bytes()).hexdigest() for record in found}


def _contents(*paths: Path | None) -> dict[str, dict[str, Any]]:
    """The content of files, by their path, without where and how a server is asked: it may change between commands."""
    found = {str(path): read_mapping(find_shipped(path), ComparisonError) for path in paths if path is not None}
    return {
        path: {key: value for key, value in content.items() if key not in OF_THE_SERVER}
        for path, content in found.items()
    }
