"""Kinds of files, each with how it is written and what a command reads from it, and what becomes of damaged copies."""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from helpers.data.made_episodes import ACTIONS, made_episode
from safetensors.numpy import save

from vlm_agent.agents import Usage
from vlm_agent.agents.examples.nearest import stored_vectors
from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.datasets.convert.folder import Options, Plan, job, read_entry, read_plan, write_or_verify_plan
from vlm_agent.datasets.convert.summary import Entry, FileSummary, QuarantinedRecord
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset, manifest_digest
from vlm_agent.datasets.shards.schema import ALL_BUT_PIXELS, INDEX, INDEXED
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.sources import BadRecord, Input
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import HEADING, STEPS, Heading, TraceStep, read_steps, read_trace
from vlm_agent.episodes import WIDGET_KINDS, Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.offline.parts import AnswerCounts, Parts
from vlm_agent.evaluation.online.runs import RESULT, read_result
from vlm_agent.evaluation.predictions import predictions_for, read_predictions, write_predictions
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.files import read_checked, write_checked
from vlm_agent.models.features.job import ShardExtraction
from vlm_agent.models.features.store import FEATURES, PIXELS, SUMS, FeatureStore, name_of
from vlm_agent.models.run_layout import DIGESTS, FINISHED, base_folder, checked, trained
from vlm_agent.screens.icons import tiny as icons
from vlm_agent.screens.widgets.tiny import Network, PhoneWidgetsTiny
from vlm_agent.training.run_folder.status import read_status


@dataclass(frozen=True)
class Kind:
    """`write` writes files into a folder and returns the one to damage; `read` returns what a command reads."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]


AS_BEFORE, REFUSED, SILENT, TRACEBACK = "read as before", "refused", "read as something else", "traceback"


def outcome(kind: Kind, path: Path, expected: Any) -> tuple[str, str]:
    """What reading a damaged file leads to, and details. An error must have one line and name the file."""
    try:
        found = kind.read(path)
    except UserError as error:
        is_good = str(path) in str(error) and "\n" not in str(error)
        return (REFUSED if is_good else TRACEBACK), f"error without the file, or of several lines: {error}"
    except Exception as error:  # noqa: BLE001 (counted)
        return TRACEBACK, f"{type(error).__name__}: {error}"
    return (AS_BEFORE if found == expected else SILENT), f"{found}"


def _episodes(count: int = 8) -> list:
    actions = [ACTIONS[number % 5 : number % 5 + 4] for number in range(count)]
    return [made_episode(f"e{number}", actions=actions[number], size=(12, 8)) for number in range(count)]


def _rows() -> list:
    return [
        row
        for number, episode in enumerate(_episodes())
        for row in predictions_for(
            episode,
            [f"tap {number} {step}" for step in range(len(episode))],
            [step.action if (number + at) % 3 else None for at, step in enumerate(episode.steps)],
            [Usage(10 + number, 2, 1, 0.5, True)] * len(episode),
        )
    ]


def _write_predictions(folder: Path) -> Path:
    path = folder / "predictions.parquet"
    write_predictions(path, _rows())
    return path


SHARD = "general/0.parquet"


def _write_shards(folder: Path) -> Path:
    with ShardWriter(folder / SHARD) as writer:
        for number, episode in enumerate(_episodes(2)):
            writer.write(episode, ("train", "test")[number % 2])
    files = [{"shard": SHARD, "episodes_written": 2, "steps_written": 8, "sha256": "ab" * 32}]
    write_manifest(folder, {"files": files, "steps_written": 8, "episodes_written": 2})
    return folder


def _read_shard(path: Path) -> Any:
    dataset = ShardDataset(path.parent.parent)
    return [dataset.row(index) for index in range(len(dataset))], dataset.table(ALL_BUT_PIXELS).to_pylist()


def _read_index(path: Path) -> Any:
    dataset = ShardDataset(path.parent)
    return dataset.ids, dataset.splits, list(dataset.screen_sizes), dataset.table(INDEXED).to_pylist()


def _input(folder: Path) -> Input:
    return Input.of("0", "general", [folder / "source.tfrecord"])


def _write_entry(folder: Path) -> Path:
    (folder / "source.tfrecord").write_bytes(b"")
    summary = FileSummary("0", 99, "ab" * 32, "general", None, 0, 8, 1, 3, 2, exclusions={"blank": 3})
    line = QuarantinedRecord("source.tfrecord", 3, 70, "its checksum is wrong")
    path = job(folder).entry_path(_input(folder).shard)
    write_checked(path, asdict(Entry(summary, [], [line])))
    return path


def _read_entry(path: Path) -> Any:
    folder = path.parents[2]
    return read_entry(folder, _input(folder), frozenset())


def _write_plan(folder: Path) -> Path:
    (folder / "source.tfrecord").write_bytes(b"")
    output = folder / "out"
    write_or_verify_plan(output, Plan("aitw", Options(mixture={"general": 0.5}), (_input(folder),)))
    return output / ".conversion/plan.json"


def _write_metrics(folder: Path) -> Path:
    write_checked(folder / "metrics.json", {AGENT: score(_write_predictions(folder))}, indent=2)
    return folder / "metrics.json"


def _write_summary(folder: Path) -> Path:
    parts = Parts(folder, range(3))
    rows = _rows()
    parts.write(AGENT, 0, rows, AnswerCounts(len(rows), len(rows), ["e1 step 2"], unread=["e3 step 0"], repaired=2))
    parts.merge(AGENT)
    return folder / "parts" / f"{AGENT}.json"


def _read_summary(path: Path) -> Any:
    return Parts(path.parents[1], range(3)).counts(AGENT)


def _write_result(folder: Path) -> Path:
    task = {"task": "simulated:0:1", "subset": "general", "template": "clock", "memory": False, "goal": "set a timer"}
    ends = {
        "reached": True,
        "success": True,
        "ever_reached": True,
        "false_complete": False,
        "side_effects": ["+ Wi-Fi is on"],
    }
    ends |= {"side_effects": ["+ Wi-Fi is on"], "expert_steps": 4, "reason": "complete", "message": "", "steps": 6}
    counts = {
        "unparsed": 1,
        "in_doubt": 0,
        "tokens": [120, 30],
        "seconds": {"agent": 1.5},
        "calls": 6,
        "beyond_context": 0,
    }
    write_checked(folder / RESULT, task | ends | counts)
    return folder / RESULT


def _write_finished(folder: Path) -> Path:
    figures = {"steps": 400, "last_losses": {"loss": 0.125}, "parameters": {"vlm": 12345}}
    write_checked(folder / FINISHED, {"figures": figures, "commit": "ab" * 20, "command": ["train"]}, indent=2)
    return folder / FINISHED


def _read_finished(path: Path) -> Any:
    status = read_status(path.parent)
    return status.step, status.steps, status.loss, read_checked(path, "train again")["figures"]


class _MeanColours:
    """An extractor of two vectors of four numbers, from the mean colour of a screen."""

    shape = (2, 4)

    def preprocess(self, pixels: np.ndarray) -> np.ndarray:
        return pixels

    def extract_prepared(self, screens: list[np.ndarray]) -> np.ndarray:
        return np.array([np.full(self.shape, screen.mean() + 0.25) for screen in screens], np.float16)


def _write_features(folder: Path) -> Path:
    dataset, output = ShardDataset(_write_shards(folder / "shards")), folder / "features"
    file = ShardExtraction(dataset, _MeanColours(), output, 4, 1).extract(
        SHARD, [0, 1], output / "entry.json", lambda _: None
    )
    about = {"extractor": "clip", "checkpoint": None, "form": "patches", "digest": "ab" * 32, "precision": "float32"}
    shards = {"manifest_sha256": manifest_digest(dataset.directory)}
    size = {"features_version": 1, "extractor": about, "tokens": 2, "size": 4, "shards": shards}
    write_checked(output / MANIFEST, size | {"files": [file.content()]})
    return output


@cache
def _undamaged(shards: Path) -> ShardDataset:
    return ShardDataset(shards)


@cache
def _screens(shards: Path) -> list[np.ndarray]:
    return [step.screenshot for index in range(2) for step in _undamaged(shards)[index].steps]


def _read_features(path: Path) -> Any:
    """Every step, by its number and by its pixels, as training and evaluation read them."""
    folder = path.parent if path.name == MANIFEST else path.parents[1]
    dataset, store = _undamaged(folder.parent / "shards"), FeatureStore(folder)
    by_number = [np.array(row).tobytes() for index in range(2) for row in store.steps(dataset, index)]
    found = [store.find(screen) for screen in _screens(folder.parent / "shards")]
    return by_number, [None if row is None else np.array(row).tobytes() for row in found]


def _of_features(ending: str) -> Kind:
    return Kind(lambda folder: _write_features(folder) / name_of(SHARD, ending), _read_features)


RUN_FILES = ("recipe.yaml", "model/config.json", "model/model.safetensors", "tokenizer/tokenizer.json")


def _of_run(name: str) -> Kind:
    """A file of a finished run, by what an evaluation reads of the run before it answers."""

    def write(folder: Path) -> Path:
        shutil.copytree(base_folder("phone_vlm_tiny"), folder / "run")
        (folder / "run/model/model.safetensors").write_bytes(save({"a": np.arange(999, dtype=np.float32)}))
        (folder / "run" / FINISHED).unlink()
        write_checked(folder / "run" / FINISHED, {DIGESTS: trained(folder / "run").digests})
        return folder / "run" / name

    def read(path: Path) -> Any:
        return checked(path.parents[name.count("/")], weights=True).digests

    return Kind(write, read)


def _write_trace(folder: Path) -> Path:
    heading = Heading("a" * 32, "set a timer", "runs/a", "simulated", "general", "general/test/7", (12, 8))
    with TraceWriter(folder / "trace", heading) as trace:
        for number, action in enumerate((Action.tap(0.25, 0.5), Action.type_text("9 min"), Action.complete())):
            trace.screen(number, np.full((12, 8, 3), number, np.uint8))
            elements = (UiElement((0.0, 0.0, 0.25, 0.5), "Wi-Fi"),)
            step = TraceStep(number, f"screen_{number:03d}.png", "clock", elements, "tap", action, tokens=(7, 2))
            trace.step(step)
            trace.outcome(number, "done", 0.5)
        trace.end("complete")
    return folder / "trace"


def _read_as_data(path: Path) -> Any:
    """What `convert` reads; a quarantined record is an error that names its file."""
    records = list(read_steps(path.parent))
    for bad in (record for record in records if isinstance(record, BadRecord)):
        raise UserError(f"{bad.file}: {bad.reason}")
    return [(record.goal, record.subset, record.step.action, record.step.elements) for record in records]


def _write_demonstrations(folder: Path) -> Path:
    store = Demonstrations(folder / "demonstrations.sqlite")
    for number in range(20):
        store.add(f"set a timer for {number} minutes", "clock", ["tap Timer", f"type '{number}'", "tap Start"])
    return store.path


class _OneVector:
    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([[len(text), 1.0, 0.5] for text in texts], np.float32)


_GOALS = [f"goal {'x' * number}" for number in range(40)]


def _write_vectors(folder: Path) -> Path:
    stored_vectors(_OneVector(), "encoder", _GOALS, folder)
    return next(folder.glob("*.npy"))


def _read_vectors(path: Path) -> Any:
    return stored_vectors(_OneVector(), "encoder", _GOALS, path.parent).tolist()


def _write_detector(folder: Path) -> Path:
    path = folder / "model.safetensors"
    PhoneWidgetsTiny(Network(len(WIDGET_KINDS)), 64, ("switch",)).write(path)
    return path


def _read_detector(path: Path) -> Any:
    detector = PhoneWidgetsTiny.load(path)
    return {name: tensor.numpy().tobytes() for name, tensor in detector.network.state_dict().items()}, detector.side


def _write_icons(folder: Path) -> Path:
    icons.write(icons.Network(3), sorted(icons.MEANINGS)[:3], folder / "model.safetensors")
    return folder / "model.safetensors"


def _read_icons(path: Path) -> Any:
    network, meanings = icons.read(path)
    return {name: tensor.numpy().tobytes() for name, tensor in network.state_dict().items()}, meanings


KINDS = {
    "predictions": Kind(_write_predictions, read_predictions),
    "scores of predictions": Kind(_write_predictions, score),
    "shard": Kind(lambda folder: _write_shards(folder) / SHARD, _read_shard),
    "index of shards": Kind(lambda folder: _write_shards(folder) / INDEX, _read_index),
    "manifest of shards": Kind(
        lambda folder: _write_shards(folder) / MANIFEST, lambda path: ShardDataset(path.parent).manifest
    ),
    "entry of a conversion": Kind(_write_entry, _read_entry),
    "plan of a conversion": Kind(_write_plan, lambda path: read_plan(path.parents[1])),
    "metrics.json": Kind(_write_metrics, lambda path: read_checked(path, "evaluate again")),
    "summary of predictions": Kind(_write_summary, _read_summary),
    "result.json of a task": Kind(_write_result, lambda path: read_result(path.parent, "simulated:0:1")),
    "run.json": Kind(_write_finished, _read_finished),
    "manifest of features": Kind(
        lambda folder: _write_features(folder) / MANIFEST, lambda path: FeatureStore(path.parent).manifest
    ),
    "features": _of_features(FEATURES),
    "digests of pixels": _of_features(PIXELS),
    "checksums of features": _of_features(SUMS),
    **{f"run: {name}": _of_run(name) for name in RUN_FILES},
    "trace.json": Kind(lambda folder: _write_trace(folder) / HEADING, lambda path: read_trace(path.parent).heading),
    "weights of a detector": Kind(_write_detector, _read_detector),
    "weights of icons": Kind(_write_icons, _read_icons),
}

FLIPPED = KINDS | {
    "steps.jsonl": Kind(lambda folder: _write_trace(folder) / STEPS, lambda path: read_trace(path.parent).steps),
    "steps.jsonl as data": Kind(lambda folder: _write_trace(folder) / STEPS, _read_as_data),
    "goal vectors": Kind(_write_vectors, _read_vectors),
    "demonstrations": Kind(_write_demonstrations, lambda path: Demonstrations(path).all()),
}
"""Also files that a kill may cut, which are then read up to the cut, vectors that are computed again, and SQLite, which
checks its own pages."""
