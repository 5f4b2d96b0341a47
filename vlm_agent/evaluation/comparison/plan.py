"""What decides the results of a comparison, kept in its folder; another one is refused.

OUT/plan.json                 the comparison file without its seeds and agents, its sizes, the agents from whose prompts
                              the served model learns, and the content of its recipe and of the benchmark
OUT/plans/AGENT/plan.json     an agent, without what is only shown, and the content of its recipe or agent file

The contents are those of the files when the first command ran, and are compared before every stage: an edited file is
another comparison. Files that these files name, such as prompts, are not compared.

Seeds and agents can be added: every stage belongs to one agent and seed. An agent that prompts the served model cannot,
because that model learns from the prompts of all of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlm_agent.agents.llm.prompted import OF_THE_SERVER
from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.evaluation.comparison.settings import ComparisonError
from vlm_agent.evaluation.comparison.stages import Stages
from vlm_agent.files.jobs import Job, differences
from vlm_agent.recipe.yaml_file import find_shipped, read_mapping

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
    for job, plan in _verified(stages):
        if not job.plan_path.exists():
            job.write_or_verify_plan(plan)


def verify(stages: Stages) -> None:
    """Like `write_or_verify`, and writes nothing."""
    _verified(stages)


def _verified(stages: Stages) -> list[tuple[Job, dict[str, Any]]]:
    """The plans of this comparison, which reads its files once; those in the folder agree with them."""
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
    benchmark = stages.layout.benchmark(comparison.benchmark)
    return {
        "comparison": comparison.model_dump(mode="json", exclude={"seeds", "agents"}),
        "served_agents": sorted(key for key, agent in agents.items() if agent.served and stages.is_served_here),
        "quick": stages.quick,
        "shards": None if shards is None else str(shards),
        "benchmark": None if shards is None else str(stages.layout.user_benchmark),
        "served_model": None if endpoint is None else endpoint.model,
        _FILES: _contents(None if served is None else served.recipe, benchmark),
    }


def _agents(stages: Stages) -> Iterator[tuple[Job, dict[str, Any]]]:
    for key, agent in stages.comparison.agents.items():
        job = Job(stages.layout.output / "plans" / key, f"the agent {key} of a comparison")
        files = {_FILES: _contents(agent.recipe, agent.agent)}
        yield job, agent.model_dump(mode="json", exclude=_SHOWN) | files


def _contents(*paths: Path | None) -> dict[str, dict[str, Any]]:
    """The content of files, by their path, without where and how a server is asked: it may change between commands."""
    found = {str(path): read_mapping(find_shipped(path), ComparisonError) for path in paths if path is not None}
    return {
        path: {key: value for key, value in content.items() if key not in OF_THE_SERVER}
        for path, content in found.items()
    }
