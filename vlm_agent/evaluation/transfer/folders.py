"""Finished evaluation folders, checked to be of different models on the same episodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.identity import AGENT
from vlm_agent.evaluation.offline.plan import job

_SAME = ("shards", "split", "limit", "draw", "dialect")
"""Settings that decide the episodes and the scorers; `shards` is the digest of their manifest, `draw` that of the
benchmark (None without one)."""


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation. `data` holds the settings of `_SAME`, `agent` the identity of agent and language."""

    name: str
    folder: Path
    agent: dict[str, Any]
    data: dict[str, Any]

    @property
    def predictions(self) -> Path:
        return self.folder / "predictions.parquet"


def read_evaluations(folders: Mapping[str, Path]) -> list[Evaluation]:
    """The evaluations by name, those named like a published subset first, in the order of the subsets.

    Raises DatasetError naming the folder where one is not a finished evaluation, where two hold the same agent, and
    where shards, split, limit, draw or dialect differ from those of the first. The shards need not be on this machine.
    """
    evaluations = [_read(name, folder) for name, folder in folders.items()]
    if len(evaluations) < 2:
        raise DatasetError("transfer compares at least two evaluations; name the folder of each model")
    _check_same_data(evaluations)
    _check_different_agents(evaluations)
    order = {subset: number for number, subset in enumerate(published_subsets())}
    return sorted(evaluations, key=lambda evaluation: order.get(evaluation.name, len(order)))


def _read(name: str, folder: Path) -> Evaluation:
    plan = job(folder).read_plan()
    with job(folder).parsing_plan():
        identity, settings = plan["described"], plan["given"]
        is_finished = AGENT in identity["runs"] and (folder / "metrics.json").is_file()
        data = {key: identity.get(key, settings.get(key)) for key in _SAME}
        found = Evaluation(name, folder, {key: identity[key] for key in ("agent", "language")}, data)
    if not is_finished:
        raise DatasetError(f"{folder} is not a finished evaluation; run the same evaluate command again to complete it")
    return found


def _check_same_data(evaluations: Sequence[Evaluation]) -> None:
    first = evaluations[0]
    for other in evaluations[1:]:
        for key in _SAME:
            if first.data[key] != other.data[key]:
                values = "" if key == "shards" else f" ({first.data[key]!r} and {other.data[key]!r})"
                raise DatasetError(
                    f"{first.folder} and {other.folder} have a different {key}{values}; "
                    "evaluate all models with the same --shards and --benchmark"
                )


def _check_different_agents(evaluations: Sequence[Evaluation]) -> None:
    for number, evaluation in enumerate(evaluations):
        for other in evaluations[:number]:
            if other.agent == evaluation.agent:
                raise DatasetError(
                    f"{other.folder} and {evaluation.folder} are evaluations of the same model; name each model once"
                )
