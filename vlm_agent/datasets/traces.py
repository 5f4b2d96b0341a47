"""Traces: what an agent saw, said and did on a phone, written as it goes so that a kill loses nothing.

    TRACE/trace.json         the goal, the agent, the phone; written first
    TRACE/screen_000.png …   what each step saw
    TRACE/steps.jsonl        lines, each written at once:

    {"step": 0, "screen": "screen_000.png", "activity": "…", "elements": [[y, x, height, width, text, type], …] or null,
     "said": "tap at 7 90", "action": {"kind": 4, "touch_yx": [y, x], "lift_yx": [y, x]} or null, "tokens": [read, said]
     or null, "seconds": {"screen": …, "agent": …}}
    {"of": 0, "outcome": "done", "seconds": …}
    {"end": "complete", "message": "", …}

A step's line stands there before the phone is touched, its outcome after. A last line without its line break was being
written when the run was killed, and counts for nothing; a step without an outcome may have been done, or not.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from vlm_agent.datasets import DatasetError, step_checks
from vlm_agent.datasets.episode_steps import BadRecord, EpisodeStep
from vlm_agent.datasets.screen_files import beside, read_screen
from vlm_agent.datasets.trace_lines import IN_DOUBT, Line, TraceStep, read_lines, read_text
from vlm_agent.episodes import SUBSETS, Episode, Step

HEADING, STEPS = "trace.json", "steps.jsonl"
VERSION = 1


@dataclass(frozen=True)
class Heading:
    """What is known before the first step. `task` is a simulated phone's, `subset/split/seed`, and `size` (height,
    width) of its screen; with them a trace can be replayed. `subset` is the one that conversion puts the episode in."""

    id: str
    goal: str
    agent: str
    device: str
    subset: str = SUBSETS[0]
    task: str | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Trace:
    """`end` is the last line as it was written; None where the run was killed."""

    folder: Path
    heading: Heading
    steps: tuple[TraceStep, ...]
    end: dict | None

    def screen(self, step: TraceStep) -> np.ndarray:
        """uint8 (height, width, 3) RGB. Raises DatasetError where it is not there or damaged."""
        return read_screen(beside(self.folder / STEPS, step.screen))

    def episode(self) -> Episode:
        """What was done, as a demonstration: without what was no action, was not allowed or did not happen."""
        steps = tuple(
            Step(self.screen(step), step.action, step.elements or (), step.activity)
            for step in self.steps
            if step.is_in_episode
        )
        return Episode(self.heading.id, self.heading.subset, self.heading.goal, steps, self.heading.device)


def is_trace(folder: Path) -> bool:
    return (folder / HEADING).is_file()


def is_data(path: Path) -> bool:
    """Whether the file stands for a trace, by its name."""
    return path.name == HEADING


def subset_of(path: Path) -> str:
    """The subset of the trace whose heading this is; the first of all where it cannot be read, which `read_steps` will
    tell."""
    try:
        return _heading(path.parent).subset
    except DatasetError:
        return SUBSETS[0]


def files_beside(heading: Path) -> list[Path]:
    """The other files of the trace whose heading this is."""
    return sorted(path for path in heading.parent.iterdir() if path.name == STEPS or path.suffix == ".png")


def write_heading(folder: Path, heading: Heading) -> None:
    text = json.dumps({"version": VERSION, **asdict(heading)}, indent=1, ensure_ascii=False)
    (folder / HEADING).write_text(text + "\n", encoding="utf-8")


def read_trace(folder: Path) -> Trace:
    """Raises DatasetError where `folder` holds no trace, or a damaged one."""
    heading, lines = _heading(folder), list(read_lines(folder / STEPS))
    for line in lines:
        if line.error is not None:
            raise DatasetError(f"{folder / STEPS}, line {line.number + 1}: {line.error}")
    end = next((line.read for line in lines if isinstance(line.read, dict)), None)
    return Trace(folder, heading, tuple(line.read for line in _with_outcomes(lines)), end)


def read_steps(folder: Path) -> Iterator[EpisodeStep | BadRecord]:
    """The steps that make the trace's episode, in order, one screen in memory at a time; what cannot be read is a
    BadRecord, and leaves a gap in the episode."""
    path = folder / STEPS
    try:
        heading = _heading(folder)
    except DatasetError as error:
        yield BadRecord(folder / HEADING, 0, 0, str(error), ends_file=True)
        return
    lines = list(read_lines(path))
    lines = [line for line in _with_outcomes(lines) if line.error is not None or line.read.is_in_episode]
    for number, line in enumerate(lines):
        try:
            yield _episode_step(path, heading, line, number, len(lines))
        except DatasetError as error:
            yield BadRecord(path, line.number, line.offset, str(error))


def _with_outcomes(lines: list[Line]) -> list[Line]:
    """The lines that are steps, each with what came of it, and those that could not be read."""
    outcomes = dict(line.read for line in lines if isinstance(line.read, tuple))
    return [
        replace(line, read=replace(line.read, outcome=outcomes.get(line.read.number, IN_DOUBT)))
        if isinstance(line.read, TraceStep)
        else line
        for line in lines
        if isinstance(line.read, TraceStep) or line.error is not None
    ]


def _episode_step(path: Path, heading: Heading, line: Line, number: int, length: int) -> EpisodeStep:
    if line.error is not None:
        raise DatasetError(line.error)
    step = line.read
    step_checks.check_place(heading.id, number, length)
    return EpisodeStep(
        file=path,
        record=line.number,
        offset=line.offset,
        fingerprint=line.checksum,
        episode_id=heading.id,
        subset=heading.subset,
        step_id=number,
        episode_length=length,
        goal=heading.goal,
        device_type=heading.device,
        android_api_level=0,
        step=Step(read_screen(beside(path, step.screen)), step.action, step.elements or (), step.activity),
    )


def _heading(folder: Path) -> Heading:
    path = folder / HEADING
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, size = content.pop("version"), content.pop("size")
        heading = Heading(**content, size=None if size is None else (int(size[0]), int(size[1])))
        for name in ("id", "goal", "agent", "device"):
            read_text(getattr(heading, name), name)
    except FileNotFoundError:
        raise DatasetError(f"{folder} holds no trace: there is no {path}") from None
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DatasetError(f"{path} is not what an agent's run wrote: {type(error).__name__} {error}") from None
    if version != VERSION or heading.subset not in SUBSETS:
        raise DatasetError(f"{path} has version {version!r} and subset {heading.subset!r}, which are not known here")
    return heading
