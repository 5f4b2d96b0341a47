"""What decides the results of a comparison, kept in its folder; another one is refused.

OUT/plan.json                 the comparison file without its seeds and agents, its sizes, the agents from whose prompts
                              the served model learns, and the content of its recipe and of the benchmark
OUT/plans/AGENT/plan.json     an agent, without what is only shown, and the content of its recipe or agent file

The contents are those of the files when the first command ran: results of an edited file do not mix with earlier ones.

Seeds and agents can be added: every stage belongs to one agent and seed. An agent that prompts the served model cannot,
because that model learns from the prompts of all of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlm_agent.comparison.settings import ComparisonError
from vlm_agent.comparison.stages import Stages
from vlm_agent.jobs import Job
from vlm_agent.recipe.shipped import find_shipped
from vlm_agent.recipe.yaml_file import read_mapping

_SHOWN = {"name", "paper", "note"}
"""Keys of an agent that change no result."""


def job_of(stages: Stages) -> Job:
    return Job(stages.layout.output, "a comparison")


def write_or_verify(stages: Stages) -> None:
    """Raises DatasetError if the folder holds another comparison, or an agent of the same key with other settings; then
    nothing is written, for no agent. Raises ComparisonError for a recipe or an agent file that cannot be read."""
    verify(stages)
    job_of(stages).write_or_verify_plan(_plan(stages))
    for job, plan in _agents(stages):
        job.write_or_verify_plan(plan)


def verify(stages: Stages) -> None:
    """Like `write_or_verify`, and writes nothing."""
    job = job_of(stages)
    job.check_folder()
    for one, plan in ((job, _plan(stages)), *_agents(stages)):
        if one.plan_path.exists():
            one.write_or_verify_plan(plan)


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
        "served_recipe": None if served is None else _content(served.recipe),
        "benchmark_file": None if benchmark is None else _content(benchmark),
    }


def _agents(stages: Stages) -> Iterator[tuple[Job, dict[str, Any]]]:
    for key, agent in stages.comparison.agents.items():
        job = Job(stages.layout.output / "plans" / key, f"the agent {key} of a comparison")
        file = agent.recipe or agent.agent
        content = {} if file is None else {"file": _content(file)}
        yield job, agent.model_dump(mode="json", exclude=_SHOWN) | content


def _content(path: Path) -> dict[str, Any]:
    return read_mapping(find_shipped(path), ComparisonError)
