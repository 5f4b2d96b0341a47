"""The scores of an evaluation folder, offline or online, for the model card of the run that it evaluated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlm_agent.agents.controls import CONTROLS
from vlm_agent.datasets.shards.dataset import MANIFEST, manifest_digest, read_manifest, title_of
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.card_command import offline_command, online_command
from vlm_agent.evaluation.identity import AGENT
from vlm_agent.evaluation.offline.about import trained_on_fact
from vlm_agent.evaluation.offline.plan import PLAN, job
from vlm_agent.evaluation.online.evaluate import ONLINE
from vlm_agent.evaluation.scoring.dialects import SCORERS
from vlm_agent.evaluation.scoring.metrics import OVERALL
from vlm_agent.files import parsing, read_checked
from vlm_agent.models.card.card import Scores, Share
from vlm_agent.models.run_layout import checked

_DAMAGED = "run the same evaluate command again"
_MEASURES = {"partial_match": "partial match", "complete_match": "complete match"}


def card_scores(run: Path, folders: Sequence[Path]) -> list[Scores]:
    """The scores in `folders`, in their order.

    Raises DatasetError for a folder that is not a finished evaluation, and for one of another model, whose agent has
    other files than `run` now.
    """
    digest = checked(run, weights=True).digest
    return [_online(run, folder, digest) if _is_online(folder) else _offline(run, folder, digest) for folder in folders]


def _is_online(folder: Path) -> bool:
    return (folder / ONLINE).is_file() and not (folder / PLAN).exists()


def _offline(run: Path, folder: Path, digest: str) -> Scores:
    plan = job(folder).read_plan()
    with job(folder).parsing_plan():
        described, others = plan["described"], plan["given"]
        _check_agent(folder, described, digest)
        command = offline_command(str(run), run.absolute().name, plan)
        revision = described["shards"]
        data = others["benchmark"] or _title(Path(others["shards"]), revision)
    path = folder / "metrics.json"
    if not path.is_file():
        raise DatasetError(f"{folder} is not a finished evaluation; {_DAMAGED} to complete it")
    metrics = read_checked(path, _DAMAGED)
    with parsing(path, _DAMAGED):
        about = metrics[AGENT]["about"]
        return Scores(
            data=data,
            split=about["split"],
            about=_about(about),
            revision=revision,
            rows=[(_shown(name, of_run), _shares(of_run)) for name, of_run in metrics.items()],
            command=command.words,
            notes=command.notes,
        )


def _title(shards: Path, digest: str) -> str:
    """What the shards hold; the name of their folder, where other shards are there now."""
    if (shards / MANIFEST).is_file() and manifest_digest(shards) == digest:
        title = title_of(read_manifest(shards))
        if title is not None:
            return title
    return shards.absolute().name


def _about(about: Mapping[str, Any]) -> str:
    part = f"{about['episodes']:,} of {about['episodes_in_split']:,} episodes of split {about['split']}"
    facts = trained_on_fact(about.get("trained_on", {}), about["episodes"])
    return "; ".join([part, *(f"{fact}: {text}" for fact, text in facts.items())])


def _shares(of_run: Mapping[str, Any]) -> list[Share]:
    """The shares of the overall sets; the official score next to the strict one."""
    shares = []
    for measure, words in _MEASURES.items():
        for scorer in SCORERS:
            row = of_run.get(scorer, {}).get(OVERALL, {})
            interval = row.get("intervals", {}).get(measure)
            shares.append(Share(f"{words}, {scorer}", row.get(measure), interval))
    return shares


def _online(run: Path, folder: Path, digest: str) -> Scores:
    content = read_checked(folder / ONLINE, _DAMAGED)
    with parsing(folder / ONLINE, _DAMAGED):
        about = content["about"]
        _check_agent(folder, about, digest)
        controls = [name for name in content["runs"] if name in CONTROLS]
        command = online_command(str(run), run.absolute().name, about, controls)
        rows = {name: of_run[OVERALL] for name, of_run in content["runs"].items()}
        return Scores(
            data="simulated phone",
            split=about["split"],
            about=f"{about['tasks']:,} tasks of split {about['split']}, seed {about['seed']}",
            revision=None,
            rows=[(_shown(name), [Share("success", row["success"], row["interval"])]) for name, row in rows.items()],
            command=command.words,
            notes=command.notes,
        )


def _shown(run: str, of_run: Mapping[str, Any] | None = None) -> str:
    failed = len((of_run or {}).get("about", {}).get("failed_steps", ()))
    note = f" ({failed:,} steps without an answer, counted as wrong)" if failed else ""
    return f"{'this model' if run == AGENT else run.replace('_', ' ')}{note}"


def _check_agent(folder: Path, identity: Mapping[str, Any], digest: str) -> None:
    if identity["agent"].get("checkpoint") != digest:
        raise DatasetError(
            f"{folder} evaluated another model, or this one before it changed; name an output of `vlm-agent evaluate "
            "--checkpoint` with this run"
        )
