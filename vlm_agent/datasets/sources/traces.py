"""Traces: the screens, answers and actions of an agent on a phone, written step by step to survive a kill.

    TRACE/trace.json         the goal, the agent, the phone; written first
    TRACE/screen_000.png …   the screen of each step
    TRACE/steps.jsonl        lines, each written immediately:

    {"step": 0, "screen": "screen_000.png", "activity": "…", "elements": [[y, x, height, width, text, type], …] or null,
     "said": "tap at 7 90", "action": {"kind": 4, "touch_yx": [y, x], "lift_yx": [y, x]} or null,
     "tokens": [read, written] or null, "seconds": {"screen": …, "agent": …},
     "notes": {"think": "…", "action": "the action in the agent's words", "plan": "…"}, "black": true},
        the last four only where they exist: "black" marks a screen that shows nothing
    {"of": 0, "outcome": "done", "seconds": …, "message": "why", only of a failure}
    {"device": {"kind": 4, …}}, an action that the device performs by itself (`devices/acting/around.py`)
    {"end": "complete", "message": "", …}

The line of a step (with the agent's answer as `said`) is written before its action is performed, its outcome
afterwards. A last line without a line break was interrupted by a kill and is ignored. A step with an action and without
an outcome may or may not have been performed.

As an episode, a trace has its performed actions, up to the first one in doubt or on a black screen: a model must not
learn a transition that may never have happened, or that nothing shows. The other steps are counted by reason.

`reached` of the heading, null at first, is written after the end by a command that can check the goal (`act`,
`evaluate --online`).

Each line ends with a key `crc32`, the CRC-32 of the line without it, and trace.json has a checksum
(`vlm_agent/files`): damage is an error wherever the trace is read, and the lines before a kill stay readable. A trace
of another program, whose trace.json has no checksum, needs none in its lines.

The content of these files is untrusted when it is read.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vlm_agent.datasets.sources import (
    BadRecord,
    EpisodeStep,
    Exclusion,
    Input,
    Source,
    checks,
    inputs_of_episodes,
    main_files,
)
from vlm_agent.episodes import NO_NOTES, Action, ActionKind, Step, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.files import CHECKSUM, content_of
from vlm_agent.files.hashing import HashedFiles
from vlm_agent.texts.secrets import MASK

HEADING, STEPS = "trace.json", "steps.jsonl"
VERSION = 2

DEFAULT_SUBSET = "general"

DONE, IN_DOUBT, FAILED, WITHHELD, UNPARSED = OUTCOMES = ("done", "in_doubt", "failed", "withheld", "unparsed")
"""Outcomes of a step: performed; interrupted, so it may have been performed; refused by the phone; not permitted, so
not attempted; not an action."""

OUTCOME_WORDS = {DONE: "performed", IN_DOUBT: "in doubt", FAILED: "failed", WITHHELD: "withheld", UNPARSED: "no action"}
"""Outcomes for a reader."""

BLACK, AFTER_BLACK, AFTER_DOUBT = "black picture", "after a black picture", "after an action in doubt"
NONE_PERFORMED, NONE_SHOWN = "no action was performed", "every screen with a performed action is black"
"""Reasons to exclude a performed step, and a trace. Other steps are excluded by their outcome."""

_ACTION = checks.ActionKeys("kind", "text", "touch_yx", "lift_yx")


@dataclass(frozen=True)
class TraceStep:
    """One step of a trace.

    `screen` is the name of its file. `elements` is None if the phone did not provide them. `answer` is the agent's
    answer as text, `tokens` the numbers of tokens (read, written). `notes`: what the agent
    wrote beside the action. `message` states why the action failed, or is empty. `black`:
    the screen shows nothing, because its window forbids pictures of itself or the display is off.
    `moved_points`: see `EpisodeStep`.
    """

    number: int
    screen: str
    activity: str
    elements: tuple[UiElement, ...] | None
    answer: str
    action: Action | None
    outcome: str = IN_DOUBT
    tokens: tuple[int, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = NO_NOTES
    message: str = ""
    black: bool = False
    moved_points: int = 0

    @property
    def outcome_words(self) -> str:
        """The outcome for a reader, and the mark of a black screen."""
        return OUTCOME_WORDS[self.outcome] + (f", {BLACK}" if self.black else "")


@dataclass(frozen=True)
class Heading:
    """The facts known before the first step.

    `task` is the task of a simulated phone, `subset/split/seed`, and `size` the (height, width) of its screen; with
    both, a trace can be replayed. Screenshots may be rendered at a multiple of the size. `subset` is the subset of the
    episode in a conversion. `reached`: whether the phone was in the goal's state at the end; None if it is not known.
    """

    id: str
    goal: str
    agent: str
    device: str
    subset: str = DEFAULT_SUBSET
    task: str | None = None
    size: tuple[int, int] | None = None
    reached: bool | None = None


@dataclass(frozen=True)
class Trace:
    """`end` is the content of the last line; None if the run was killed."""

    folder: Path
    heading: Heading
    steps: tuple[TraceStep, ...]
    end: dict | None

    @property
    def ending(self) -> str:
        """How the run ended, in one line, and whether its goal was reached if that is known."""
        if self.end is None:
            return "No end is recorded: the run was killed."
        message = repr(str(self.end.get("message") or ""))[1:-1]
        verdict = {None: "", True: ". The goal was reached", False: ". The goal was not reached"}
        return f"Ended: {self.end['end']}" + (f", {message}" if message else "") + verdict[self.heading.reached]

    def screen(self, step: TraceStep) -> np.ndarray:
        """uint8 (height, width, 3) RGB. Raises DatasetError if the file is missing or damaged."""
        return checks.read_screen(checks.beside(self.folder / STEPS, step.screen))

    def outcomes(self) -> dict[str, int]:
        """The number of steps by outcome, in the order of `OUTCOMES`, without zeros."""
        found = Counter(step.outcome for step in self.steps)
        return {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}

    def performed(self) -> list[tuple[TraceStep, Action]]:
        """The steps of the episode with their actions: those that were performed before the first one in doubt or on a
        black screen."""
        reasons = reasons_to_exclude(self.steps)
        return [
            (step, step.action)
            for step, reason in zip(self.steps, reasons, strict=True)
            if reason is None and step.action is not None
        ]


def reasons_to_exclude(steps: Iterable[TraceStep]) -> list[str | None]:
    """Why each step is no step of the episode: its outcome in words, BLACK, AFTER_BLACK or AFTER_DOUBT. None for steps
    of the episode."""
    reasons: list[str | None] = []
    after: str | None = None
    for step in steps:
        if step.outcome != DONE:
            reasons.append(OUTCOME_WORDS[step.outcome])
        else:
            reasons.append(BLACK if step.black else after)
        if after is None and step.outcome == IN_DOUBT:
            after = AFTER_DOUBT
        elif after is None and step.outcome == DONE and step.black:
            after = AFTER_BLACK
    return reasons


# The source


def is_trace(folder: Path) -> bool:
    return (folder / HEADING).is_file()


def is_data(path: Path) -> bool:
    """Whether the file is the heading of a trace, by its name."""
    return path.name == HEADING


def _inputs(paths: Sequence[Path]) -> list[Input]:
    """Traces of one subset together, in the order of their folders' names."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths, key=lambda path: (path.parent.name, path)):
        groups.setdefault(_subset_of(path), []).append(path)
    inputs: list[Input] = []
    for subset, group in groups.items():
        inputs += inputs_of_episodes(
            group,
            subset,
            subset,
            lambda path: sorted(file for file in path.parent.iterdir() if file.name == STEPS or file.suffix == ".png"),
        )
    return inputs


def _subset_of(path: Path) -> str:
    """The subset in this heading, or the default if the heading is damaged; `read_steps` reports the damage."""
    try:
        return _read_heading(path.parent).subset
    except DatasetError:
        return DEFAULT_SUBSET


def _read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord | Exclusion]:
    for path in main_files(input_, files, is_data):
        yield from read_steps(path.parent)


SOURCE = Source(
    name="trace",
    about="traces of agents, written by `act` and `evaluate --online`",
    example=HEADING,
    is_data=is_data,
    inputs=_inputs,
    read=_read,
)


# Reading


def read_trace(folder: Path) -> Trace:
    """The trace in `folder`. Raises DatasetError if it does not contain a trace, or a damaged one."""
    heading = _read_heading(folder)
    lines, end = _read_lines(folder)
    for line in lines:
        if line.error is not None:
            raise DatasetError(f"{folder / STEPS}, line {line.number + 1}: {line.error}")
    return Trace(folder, heading, tuple(line.step for line in lines if line.step is not None), end)


def read_steps(folder: Path) -> Iterator[EpisodeStep | BadRecord | Exclusion]:
    """The steps of the trace's episode in order, one screen in memory at a time, and the exclusion of the other steps.

    A line that cannot be read is a BadRecord and leaves a gap in the episode.
    """
    path = folder / STEPS
    try:
        heading = _read_heading(folder)
    except DatasetError as error:
        yield BadRecord(folder / HEADING, 0, 0, str(error), ends_file=True)
        return
    if " " in heading.id:  # of a task, which other evaluations play too; `act` draws an id
        files = (file.read_bytes() for file in (folder / HEADING, path) if file.is_file())
        heading = replace(heading, id=f"{heading.id} {zlib.crc32(b''.join(files)):08x}")
    lines, _ = _read_lines(folder)
    reasons = iter(reasons_to_exclude(line.step for line in lines if line.step is not None))
    judged = [(line, None if line.step is None else next(reasons)) for line in lines]
    kept = [line for line, reason in judged if reason is None]
    for number, line in enumerate(kept):
        try:
            yield _episode_step(path, heading, line, number, len(kept))
        except DatasetError as error:
            yield BadRecord(path, line.number, line.offset, str(error))
    excluded = [reason for _, reason in judged if reason is not None]
    yield from (Exclusion(reason, steps=1) for reason in excluded)
    if not kept:
        yield Exclusion(NONE_SHOWN if BLACK in excluded else NONE_PERFORMED, episodes=1)


@dataclass(frozen=True)
class _Line:
    """Line `number` (from 0) at byte `offset`: a step, or the error of a line that cannot be read."""

    number: int
    offset: int
    checksum: int
    step: TraceStep | None = None
    error: str | None = None


_CRC = re.compile(rb', "crc32": "([0-9a-f]{8})"\}$')


def sealed(line: str) -> str:
    """A line of steps.jsonl, a JSON object, with its CRC-32 as the last key."""
    return f'{line[:-1]}, "crc32": "{zlib.crc32(line.encode()):08x}"}}'


def _unsealed(data: bytes, is_checked: bool) -> dict:
    """The content of a line. Raises DatasetError where it differs from its CRC-32, or lacks one that it must have."""
    found = _CRC.search(data)
    if found is not None and int(found[1], 16) != zlib.crc32(data[: found.start()] + b"}"):
        raise DatasetError("the line differs from its checksum: it is damaged; restore it from a copy of the trace")
    if found is None and is_checked:
        raise DatasetError("the line has no checksum: it is damaged; restore it from a copy of the trace")
    content: dict = json.loads(data)
    if found is not None:
        del content["crc32"]
    return content


def _is_interrupted(data: bytes) -> bool:
    """Whether a last line without a line break is one that a kill cut off: no whole object."""
    try:
        json.JSONDecoder().raw_decode(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return False


def _read_lines(folder: Path) -> tuple[list[_Line], dict | None]:
    """The lines with a step, its outcome added, and the unreadable ones; and the line of the end, None without one."""
    found: list[_Line] = []
    outcomes: dict[int, tuple[str, str]] = {}  # of a step, and why it failed
    end = None
    # Every line must have a checksum where the heading has one.
    is_checked = f'"{CHECKSUM}"'.encode() in (folder / HEADING).read_bytes()[:64]
    for number, offset, data in _complete_lines(folder / STEPS):
        line = _Line(number, offset, zlib.crc32(data))
        try:
            content = _unsealed(data.removesuffix(b"\n"), is_checked)
            if "end" in content:
                last = dict(content)
                end = last if end is None else end
            elif "device" in content:
                _action_of(content["device"])
            elif "of" in content:
                outcome, why = content["outcome"], checks.text_of(content.get("message", ""), "message")
                if outcome not in OUTCOMES:
                    raise DatasetError(f"outcome is {outcome!r}; expected one of {', '.join(OUTCOMES)}")
                outcomes[_step_number(content, "of")] = outcome, why
            else:
                found.append(replace(line, step=_step_of(content)))
        except DatasetError as error:
            found.append(replace(line, error=str(error)))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            found.append(replace(line, error=f"not a line of a trace: {type(error).__name__} {error}"))
    return [line if line.step is None else replace(line, step=_ended(line.step, outcomes)) for line in found], end


def _complete_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(number, byte at which it begins, bytes) of each complete line; none if the file does not exist."""
    if not path.is_file():
        return
    offset = 0
    with path.open("rb") as file:
        for number, data in enumerate(file):
            if data.endswith(b"\n") or not _is_interrupted(data):
                yield number, offset, data
            offset += len(data)


def _ended(step: TraceStep, outcomes: Mapping[int, tuple[str, str]]) -> TraceStep:
    outcome, message = (UNPARSED, "") if step.action is None else outcomes.get(step.number, (IN_DOUBT, ""))
    return replace(step, outcome=outcome, message=message)


def _step_of(content: dict) -> TraceStep:
    fields = checks.JsonFields(content)
    elements, tokens = content["elements"], content["tokens"]
    action, moved_points = (None, 0) if content["action"] is None else _action_of(content["action"])
    return TraceStep(
        _step_number(content, "step"),
        fields.string("screen"),
        fields.string("activity"),
        None if elements is None else _elements_of(elements),
        fields.string("said"),
        action,
        tokens=None if tokens is None else (int(tokens[0]), int(tokens[1])),
        seconds=dict(
            zip(content["seconds"], checks.numbers_of([*content["seconds"].values()], "seconds"), strict=True)
        ),
        notes={
            checks.text_of(name, "the name of a note"): checks.text_of(text, f"notes.{name}")
            for name, text in content.get("notes", {}).items()
        },
        black=_flag(content.get("black", False), "black"),
        moved_points=moved_points,
    )


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise DatasetError(f"{name} is {value!r}, expected true or false")
    return value


def _action_of(content: dict) -> tuple[Action, int]:
    return checks.read_action(checks.JsonFields(content), _ACTION, tuple(ActionKind))


def _elements_of(rows: list) -> tuple[UiElement, ...]:
    boxes = checks.numbers_of([value for row in rows for value in row[:4]], "elements")
    texts, types = ([checks.text_of(row[column], "elements") for row in rows] for column in (4, 5))
    return checks.elements_of(boxes, texts, types, "elements")


def _step_number(content: dict, key: str) -> int:
    value = content[key]
    if type(value) is not int or not 0 <= value < checks.MAX_STEPS:
        raise DatasetError(f"{key} is {value!r}, expected a number from 0 to {checks.MAX_STEPS - 1}")
    return value


def _episode_step(path: Path, heading: Heading, line: _Line, number: int, length: int) -> EpisodeStep:
    step = line.step
    if step is None or step.action is None:
        raise DatasetError(line.error or "the line has no action")
    if MASK in step.action.text:
        raise DatasetError("what was typed is masked, as a secret, and no model should learn to type the mask")
    checks.check_position(heading.id, number, length)
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
        step=Step(
            checks.read_screen(checks.beside(path, step.screen)),
            step.action,
            step.elements or (),
            step.activity,
            step.notes,
        ),
        moved_points=step.moved_points,
    )


def _checked_size(size: Sequence[object]) -> tuple[int, int]:
    height, width = size
    if not (isinstance(height, int) and isinstance(width, int) and checks.is_screen_size(height, width)):
        raise ValueError(f"size {size!r} is not that of a screen")
    return height, width


def _read_heading(folder: Path) -> Heading:
    path = folder / HEADING
    if not path.is_file():
        raise DatasetError(f"{folder} is not the folder of a trace: {path} does not exist")
    plain = content_of(path, "restore it from a copy of the trace")
    try:
        content = json.loads(plain)
        version, size = content.pop("version"), content.pop("size")
        heading = Heading(**content, size=None if size is None else _checked_size(size))
        for name in ("id", "goal", "agent", "device", "subset"):
            checks.text_of(getattr(heading, name), name)
        checks.check_subset(heading.subset, "subset")
        if heading.reached is not None:
            _flag(heading.reached, "reached")
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DatasetError(f"{path} is not the heading of a trace: {type(error).__name__} {error}") from None
    if version != VERSION:
        raise DatasetError(f"{path} has version {version!r}; this program reads version {VERSION}")
    return heading
