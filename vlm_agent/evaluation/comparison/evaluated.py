"""The files of finished stages, as far as a comparison reads them.

They may be of another version, or edited, so their shape is checked: an error names the file, the key and the remedy.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.offline.plan import METRICS
from vlm_agent.evaluation.online.evaluate import EXPERT
from vlm_agent.evaluation.online.evaluate import ONLINE as ONLINE_FILE
from vlm_agent.files import read_checked
from vlm_agent.models.run_layout import FINISHED

_REMEDY = "remove it and run the same command again"


@dataclass
class _Overall:
    """Percent. `intervals`: of each share, of 95 %."""

    partial_match: float | None
    complete_match: float | None
    episodes: int
    steps: int
    intervals: dict[str, list[float] | None] = field(default_factory=dict)


@dataclass
class _Scorer:
    overall: _Overall


@dataclass
class _Data:
    """`texts`: the origin of each text that the agent read."""

    split: str
    texts: dict[str, str] = field(default_factory=dict)


@dataclass
class _Scores:
    """The scores of a run in `metrics.json`. `scorers`: what each of its scorers does. `cost`: means over episodes,
    `cost_a_step` over steps."""

    official: _Scorer
    strict: _Scorer
    about: _Data
    scorers: dict[str, dict[str, str]] = field(default_factory=dict)
    cost: dict[str, float | None] = field(default_factory=dict)
    cost_a_step: dict[str, float | None] = field(default_factory=dict)


@dataclass
class _OnlineCost:
    seconds_a_step: float | None


@dataclass
class _OnlineOverall:
    """Percent, and intervals of 95 %: the keys of `SHARES_OF_TASKS`."""

    success: float | None
    interval: list[float] | None
    false_completes: float | None
    false_completes_interval: list[float] | None
    side_effects: float | None
    side_effects_interval: list[float] | None
    cost: _OnlineCost


@dataclass
class _OnlineRun:
    overall: _OnlineOverall


@dataclass
class _Outcome:
    success: bool | None


@dataclass
class _OnlineTask:
    task: str
    runs: dict[str, _Outcome]


@dataclass
class _Online:
    runs: dict[str, _OnlineRun]
    tasks: list[_OnlineTask]


@dataclass
class _Figures:
    parameters: dict[str, int] = field(default_factory=dict)
    hardware: str | None = None
    reads: str | None = None
    seconds: float | None = None


@dataclass
class _Trained:
    figures: _Figures
    commit: str | None = None
    shards: str | None = None
    manifest_sha256: str | None = None


def read_metrics(folder: Path) -> dict[str, dict[str, Any]]:
    """The runs of an offline evaluation, the agent's own among them."""
    path = folder / METRICS
    return _with_runs(path, read_checked(path, _REMEDY, dict[str, _Scores]), AGENT)


def read_online(folder: Path) -> dict[str, dict[str, Any]]:
    """The runs of an online evaluation, the agent's own and the expert's among them."""
    path = folder / ONLINE_FILE
    return _with_runs(path, read_checked(path, _REMEDY, _Online)["runs"], AGENT, EXPERT)


def read_successes(folder: Path) -> dict[str, bool]:
    """By task, whether the agent of an online evaluation succeeded; without tasks whose judge failed."""
    path = folder / ONLINE_FILE
    tasks = read_checked(path, _REMEDY, _Online)["tasks"]
    outcomes = {task["task"]: _with_runs(path, task["runs"], AGENT)[AGENT]["success"] for task in tasks}
    return {task: success for task, success in outcomes.items() if success is not None}


def read_parameters(run: Path) -> int | None:
    """The parameters of the model of a run, an adapter with its base; None for a run that records none."""
    counts = _read_run(run)["figures"].get("parameters")
    return None if counts is None else sum(counts.values())


def read_seconds(run: Path) -> float | None:
    """Seconds of its training, over all starts."""
    return _read_run(run)["figures"].get("seconds")


def read_data(run: Path) -> tuple[str, str | None]:
    """What a run was trained on, in words, and the sha256 of the manifest of its shards; None without shards."""
    record = _read_run(run)
    parts = [record["figures"].get("reads"), None if record.get("shards") is None else f"shards {record['shards']}"]
    return " of ".join(part for part in parts if part), record.get("manifest_sha256")


def read_origin(run: Path) -> str:
    """The hardware and the commit on which a run was trained, in words, as far as the run records them."""
    record = _read_run(run)
    commit = record.get("commit")
    parts = [record["figures"].get("hardware"), None if commit is None else f"commit {commit[:7]}"]
    return "; ".join(part.removeprefix("device: ") for part in parts if part)


def _read_run(run: Path) -> dict[str, Any]:
    return read_checked(run / FINISHED, "restore it, or train the run again", _Trained)


def _with_runs(path: Path, runs: dict[str, Any], *names: str) -> dict[str, Any]:
    if missing := [name for name in names if name not in runs]:
        raise DatasetError(f"{path} is damaged (it has no run {missing[0]}); {_REMEDY}")
    return runs
