"""Estimated hours of stages before they run: trainings by their dry run, prompts by the tokens of their calls.

Shards must exist. Of models, configurations are read and no weights.
"""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from vlm_agent.agents.llm.cost import Expense
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import UserError
from vlm_agent.evaluation.benchmark import read_benchmark
from vlm_agent.evaluation.comparison.settings import Contestant
from vlm_agent.evaluation.comparison.stages import OFFLINE, TRAIN, Stage, Stages
from vlm_agent.recipe.run import read_recipe
from vlm_agent.recipe.yaml_file import find_shipped
from vlm_agent.training.dry_run.hardware import find_gpu

TEST = "test"

TOKENS_A_SECOND = Expense(read=20_000, written=1_000)
"""Throughput of a server with a 7B model on an H100 and eight calls at once: assumed, not measured."""

FORWARD = 1 / 3
"""Share of the FLOPs of training that a forward pass takes."""

SAMPLE = 4
"""Episodes whose prompts an estimate is computed from."""


def hours_of(stage: Stage, stages: Stages, gpu: str) -> str:
    """`-` without an estimate: for other kinds of stages, data that an earlier stage writes, a model whose
    configuration is not on this machine. An evaluation without prompts is one forward pass, so its hours are a lower
    bound: decoding is not counted. Raises HardwareError for an unknown GPU."""
    find_gpu(gpu)
    try:
        with redirect_stdout(sys.stderr):  # a listing is read by programs, and some agents report what they load
            return _hours(stage, stages, gpu)
    except (UserError, OSError):
        return "-"


def _hours(stage: Stage, stages: Stages, gpu: str) -> str:
    if stage.kind == TRAIN:
        return f"{_of_training(stage.words, gpu, stage.gpus):.2g}"
    if stage.kind != OFFLINE or stage.owner is None:
        return "-"
    agent = stages.comparison.agents[stage.owner[0]]
    return _of_answers(stage, stages, gpu) if agent.agent is None else _of_prompts(agent, agent.agent, stages)


def _of_training(words: tuple[str, ...], gpu: str, gpus: int, **keys: str) -> float:
    from vlm_agent.training.data.shard_data import ShardDataModule
    from vlm_agent.training.dry_run.report import Target, dry_run

    named = dict(zip((word.removeprefix("--") for word in words[1::2]), words[2::2], strict=True))
    recipe = read_recipe(Path(named.pop("config")), named | keys)
    return dry_run(ShardDataModule(recipe), Target(find_gpu(gpu), gpus)).hours


def _of_answers(stage: Stage, stages: Stages, gpu: str) -> str:
    train = next((one for one in stages if one.kind == TRAIN and one.owner == stage.owner), None)
    if train is None:  # a finished run
        return "-"
    dataset, chosen = _episodes(stages)
    keys = {"data.split": TEST, "data.mixture": "{}", "data.limit": "null"}
    one_pass = keys | {"training.steps": "null", "training.epochs": "1"}
    share = _steps(dataset, chosen) / _steps(dataset, range(len(dataset)))
    return f">{FORWARD * share * _of_training(train.words, gpu, 1, **one_pass):.2g}"


def _of_prompts(agent: Contestant, file: Path, stages: Stages) -> str:
    from vlm_agent.agents.llm.prompted import ServedAgent
    from vlm_agent.agents.loading import agent_settings

    dataset, chosen = _episodes(stages)
    sample = chosen[:SAMPLE]
    shards = stages.layout.shards_at(agent.scale)
    with TemporaryDirectory() as folder:  # of what the agent keeps
        overrides = agent.agent_overrides(Path(folder), shards, stages.sizes)
        prompted = agent_settings(str(find_shipped(file)), overrides=overrides).in_output(Path(folder)).load()
        if not isinstance(prompted, ServedAgent):
            return "-"
        tokens = prompted.expected([dataset[index] for index in sample])
    tokens = tokens.times(_steps(dataset, chosen) / _steps(dataset, sample) * (1 + len(agent.controls)))
    seconds = tokens.read / TOKENS_A_SECOND.read + tokens.written / TOKENS_A_SECOND.written
    return f"{seconds / 3600:.2g}"


def _episodes(stages: Stages) -> tuple[ShardDataset, list[int]]:
    from vlm_agent.evaluation.offline.run import episodes_of

    limit = {} if stages.sizes.episodes is None else {"limit": stages.sizes.episodes}
    path = stages.layout.benchmark(stages.comparison)
    found = None if path is None else find_shipped(path)
    return episodes_of(read_benchmark(found, {"shards": stages.layout.shards, "split": TEST} | limit))


def _steps(dataset: ShardDataset, episodes: Iterable[int]) -> int:
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    return sum(lengths[episode] for episode in episodes)
