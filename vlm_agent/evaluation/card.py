"""The scores of an evaluation folder, offline or online, for the model card of the run that it evaluated.

The command on the card evaluates the model with the settings that decided the scores: another run of it has the same
identity (`offline.plan.Plan.identity`). What no option can set stands in a file that the command names in capitals, and
the notes of the scores have the content of that file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlm_agent.agents.controls import CONTROLS, controls_of
from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.shards.dataset import MANIFEST, manifest_digest, read_manifest, title_of
from vlm_agent.devices.task_sets import DEFAULT, TASK_SETS
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.about import AGENT, READ_ELEMENTS, trained_on_fact
from vlm_agent.evaluation.offline.plan import PLAN, job
from vlm_agent.evaluation.online.evaluate import ONLINE
from vlm_agent.evaluation.scoring.dialects import SCORERS
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS
from vlm_agent.evaluation.scoring.metrics import OVERALL
from vlm_agent.files import parsing, read_checked
from vlm_agent.files.pages import words
from vlm_agent.models.card.card import Scores, Share
from vlm_agent.models.run_layout import checked
from vlm_agent.recipe.yaml_file import label, read_mapping, shipped_files

_DAMAGED = "run the same evaluate command again"
_MEASURES = {"partial_match": "partial match", "complete_match": "complete match"}


def card_scores(run: Path, folders: Sequence[Path]) -> list[Scores]:
    """The scores in `folders`, in their order.

    Raises DatasetError for a folder that is not a finished evaluation, and for one of another model, whose agent has
    other files than `run` now.
    """
    digest = checked(run, weights=True).digest
    found = []
    for folder in folders:
        is_online = (folder / ONLINE).is_file() and not (folder / PLAN).exists()
        found.append((_online if is_online else _offline)(run, folder, digest))
    return found


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
    is_here = (shards / MANIFEST).is_file() and manifest_digest(shards) == digest
    title = title_of(read_manifest(shards)) if is_here else None
    return shards.absolute().name if title is None else title


def _about(about: Mapping[str, Any]) -> str:
    part = f"{about['episodes']:,} of {about['episodes_in_split']:,} episodes of split {about['split']}"
    facts = trained_on_fact(about.get("trained_on", {}), about["episodes"])
    return "; ".join([part, *(f"{fact}: {text}" for fact, text in facts.items())])


def _shares(of_run: Mapping[str, Any]) -> list[Share]:
    """The shares of the overall sets; the official score next to the strict one."""
    rows = {scorer: of_run.get(scorer, {}).get(OVERALL, {}) for scorer in SCORERS}
    return [
        Share(f"{title}, {scorer}", row.get(measure), row.get("intervals", {}).get(measure))
        for measure, title in _MEASURES.items()
        for scorer, row in rows.items()
    ]


def _online(run: Path, folder: Path, digest: str) -> Scores:
    content = read_checked(folder / ONLINE, _DAMAGED)
    with parsing(folder / ONLINE, _DAMAGED):
        about = content["about"]
        _check_agent(folder, about, digest)
        controls = [name for name in content["runs"] if name in CONTROLS]
        command = online_command(str(run), run.absolute().name, about, controls)
        rows = {name: of_run[OVERALL] for name, of_run in content["runs"].items()}
        return Scores(
            data=f"{about['task_set']} phone",
            split=about["split"],
            about=f"{_tasks(about):,} tasks of split {about['split']}, seed {about['seed']}{_samples(about)}",
            revision=None,
            rows=[
                (_shown(name), [Share(words(rate), row[rate], row[edges]) for rate, edges in SHARES_OF_TASKS.items()])
                for name, row in rows.items()
            ],
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


_OUTPUT = ("--output", "OUT")
_BENCHMARK_FILE, _TASKS_FILE = "BENCHMARK.yaml", "TASKS.yaml"


@dataclass(frozen=True)
class CardCommand:
    """`words`: the command. `notes`: the content of each file that it names in capitals."""

    words: list[str]
    notes: tuple[str, ...] = ()


def offline_command(run: str, name: str, plan: Mapping[str, Any]) -> CardCommand:
    """`run`: the run folder, `name`: what the command calls it, `plan`: the content of plan.json."""
    described, others = plan["described"], plan["given"]
    agent = _agent(run, name, described)
    benchmark = _benchmark(others["benchmark"], described.get("draw"))
    words = [*agent, *benchmark.words, "--shards", others["shards"], "--split", described["split"]]
    words += [] if described["limit"] is None else ["--limit", str(described["limit"])]
    words += _controls(described, [name for name in described["runs"] if name != AGENT])
    return CardCommand(["vlm-agent", "evaluate", *words, *_OUTPUT], benchmark.notes)


def online_command(run: str, name: str, about: Mapping[str, Any], controls: Sequence[str]) -> CardCommand:
    """`about`: that of online.json, `controls`: those of its runs."""
    agent = _agent(run, name, about)
    words = ["--tasks", str(_tasks(about)), "--seed", str(about["seed"])]
    words += ["--long-screens"] if about.get("long_screens") else []
    tasks = _task_set(about)
    words += [*tasks.words, "--split", about["split"], *_controls(about, controls)]
    return CardCommand(["vlm-agent", "evaluate", "--online", *agent, *words, *_OUTPUT], tasks.notes)


def _tasks(about: Mapping[str, Any]) -> int:
    """The number of tasks, each of them played as many times as it has samples."""
    return about["tasks"] // about.get("samples", 1)


def _samples(about: Mapping[str, Any]) -> str:
    samples = about.get("samples", 1)
    return "" if samples == 1 else f", each played {samples} times"


def _agent(run: str, name: str, identity: Mapping[str, Any]) -> list[str]:
    """The options that select the agent, with its elements."""
    settings = agent_settings(checkpoint=run)
    fields = type(settings).model_fields
    changed = {key: value for key, value in identity["agent"].items() if key in fields and value != fields[key].default}
    elements = ["--elements", "read"] if READ_ELEMENTS in identity else []
    words = [word for key, value in changed.items() for word in (f"--agent.{key}", _value(value))]
    return ["--checkpoint", name, *words, *elements]


def _benchmark(name: str | None, draw: Mapping[str, Any] | None) -> CardCommand:
    """The benchmark file of this name that comes with the package, or for a draw of another one its keys."""
    if name is not None and (path := _shipped(name, draw)) is not None:
        return CardCommand(["--benchmark", path])
    if not draw:
        return CardCommand([])
    content = {"name": name, "about": "…", "source": "…"} | dict(draw)
    return CardCommand(["--benchmark", _BENCHMARK_FILE], (_note(_BENCHMARK_FILE, content),))


def _task_set(about: Mapping[str, Any]) -> CardCommand:
    """The set by its kind, or as a file where a key is not the default."""
    kind = about["task_set"]
    fields = TASK_SETS[kind].model_fields
    changed = {key: about[key] for key in fields if key in about and _value(about[key]) != _value(fields[key].default)}
    if changed:
        return CardCommand(["--task-set", _TASKS_FILE], (_note(_TASKS_FILE, {"task_set": kind} | changed),))
    return CardCommand([] if kind == DEFAULT else ["--task-set", kind])


def _shipped(name: str, draw: Mapping[str, Any] | None) -> str | None:
    from vlm_agent.evaluation.benchmark import Benchmark

    for path in shipped_files():
        if path.parent.name == "eval" and (content := read_mapping(path, DatasetError)).get("name") == name:
            return label(path) if Benchmark.model_validate(content).draw == (draw or {}) else None
    return None


def _controls(identity: Mapping[str, Any], chosen: Sequence[str]) -> list[str]:
    return [] if tuple(chosen) == controls_of(identity["text_inputs"]) else ["--controls", *(chosen or ("none",))]


def _note(file: str, content: Mapping[str, Any]) -> str:
    return f"{file}: " + ", ".join(f"{key}: {_value(value)}" for key, value in content.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
