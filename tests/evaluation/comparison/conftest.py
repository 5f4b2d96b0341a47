"""A finished comparison of two served models."""

from io import StringIO

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from rich.console import Console

from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.comparison.settings import Comparison, Endpoint
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, Layout, Stages
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.evaluation.online import evaluate_online

SIZES = {"simulated": 1, "episodes": 2, "tasks": 1}


@pytest.fixture(scope="session")
def two_servers(tmp_path_factory) -> Stages:
    """The finished evaluations of two agents with an endpoint; one always presses enter, the other ends."""
    folder = tmp_path_factory.mktemp("comparison")
    tiny.write_shards(folder / "shards", [tiny.episode(0), tiny.episode(1)], "test")
    layout, quiet = Layout(folder, folder / "shards"), Console(file=StringIO())
    agents = {"enter": "press enter", "end": "status complete"}
    for key, reply in agents.items():
        with serving(lambda number, body, reply=reply: Reply(reply)) as (url, _):
            settings = EndpointSettings(endpoint=url, model="vlm", action_language={"bins": tiny.BINS})
            benchmark = Benchmark(shards=layout.shards, split="test")
            evaluate(settings, benchmark, layout.of(OFFLINE, key, 0), quiet, controls=False)
            evaluate_online(settings, layout.of(ONLINE, key, 0), quiet, tasks=1, controls=False)
    comparison = Comparison(
        name="two servers",
        benchmark="eval/simulated_phone.yaml",
        sizes=SIZES,
        quick=SIZES,
        agents={key: {"name": key.capitalize(), "agent": f"{key}.yaml"} for key in agents},
    )
    return Stages(comparison, layout, endpoint=Endpoint("http://localhost:1/v1", "vlm"))
