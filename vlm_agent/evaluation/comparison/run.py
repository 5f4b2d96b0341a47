"""Runs a comparison, or one stage of it; killed at any time, the same command resumes.

OUT/plan.json, plans/   what decides the results; another comparison is refused (plan.py)
OUT/stages/             what ran: command, status, seconds, peak memory of each stage (records.py)
OUT/logs/               the output of each stage
OUT/comparison.json     the table and everything on the page
OUT/comparison.html
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from vlm_agent.evaluation.comparison import plan
from vlm_agent.evaluation.comparison.execution import Runner
from vlm_agent.evaluation.comparison.records import Records
from vlm_agent.evaluation.comparison.settings import ComparisonError
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, Stage, Stages
from vlm_agent.files import write_json

JSON, PAGE = "comparison.json", "comparison.html"

Needs = Sequence[tuple[Stage, Sequence[Stage]]]
"""Stages in their order, each with those whose results it reads."""


def compare(stages: Stages, console: Console) -> dict[str, Any]:
    """Runs the stages that are not done, and returns the content of `comparison.json`.

    Raises ComparisonError at the end if some agents have no result; all others are compared. DatasetError if the folder
    holds another comparison, or another process writes to it. Stopped after SIGTERM or SIGUSR1.
    """
    all_stages = stages.with_needs()  # reads the recipes: a mistake in one must not become part of the plan
    plan.write_or_verify(stages)
    job, records = plan.job_of(stages), Records(stages.layout.output)
    records.note(stage for stage, _ in all_stages)
    with job.locked(), Runner(stages, records, console) as runner:
        for number, (stage, needs) in enumerate(all_stages, 1):
            if records.is_done(stage) or not all(map(records.is_done, needs)):
                continue
            plan.verify(stages)  # a stage reads files that may have been edited while others ran
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
    job, records = plan.job_of(stages), Records(stages.layout.output)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    plan.write_or_verify(stages)
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
    plan.write_or_verify(stages)
    with plan.job_of(stages).locked(shared=True):
        return _write_results(stages, all_stages, Records(stages.layout.output), console)


def listing(stages: Stages) -> Iterator[str]:
    """A line for each stage, in an order in which each comes after those that it needs, separated by tabs: name, gpu or
    cpu, done or open, names of the stages that it needs (commas; - for none), the file or folder that it writes.

    Writes nothing. Raises DatasetError if the folder holds another comparison.
    """
    plan.verify(stages)
    records = Records(stages.layout.output)
    for stage, needs in stages.with_needs():
        names = ",".join(needed.name for needed in needs) or "-"
        state = "done" if records.is_done(stage) else "open"
        yield "\t".join((stage.name, "gpu" if stage.gpu else "cpu", state, names, str(stage.output)))


def _write_results(stages: Stages, all_stages: Needs, records: Records, console: Console) -> dict[str, Any]:
    failed = _without_result(all_stages, records)
    lines = [f"  {key}, seed {seed}: {why}" for (key, seed), why in failed.items()]
    if len(failed) == len({stage.owner for stage, _ in all_stages if stage.kind == OFFLINE}):
        raise ComparisonError("no agent has a result; run the same command again to retry:\n" + "\n".join(lines))
    from vlm_agent.evaluation.comparison.page import print_table, write_page
    from vlm_agent.evaluation.comparison.results import results_of

    content = results_of(stages, records.by_stage(stages), failed)
    output = stages.layout.output
    write_json(output / JSON, content)
    write_page(output / PAGE, content, stages.layout.shards)
    print_table(content, console)
    console.print(f"Wrote {output / PAGE} and {output / JSON}", highlight=False, markup=False, soft_wrap=True)
    if failed:
        raise ComparisonError("some agents have no result; run the same command again to retry:\n" + "\n".join(lines))
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
