"""Writes a trace line by line; `traces.py` describes the format.

Secrets that are typed (`texts/secrets.py`) are masked: in every text of the trace, also in what was written before, in
the replies of a model that are kept in the trace's folder, and as grey boxes on its pictures. Only the phone and the
agent get them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vlm_agent.datasets.sources import checks
from vlm_agent.datasets.sources.traces import HEADING, STEPS, VERSION, Heading, TraceStep, sealed
from vlm_agent.episodes import Action, ActionKind, UiElement, element_at
from vlm_agent.errors import DatasetError
from vlm_agent.files import CHECKSUM, atomic_write, checked_bytes, write_checked
from vlm_agent.files.png import encode_png
from vlm_agent.texts.secrets import MASK, Focus, Secrets, has_card

_TEXTS = frozenset({"said", "notes", "elements", "text", "goal", "message"})
"""The keys of texts in which secrets are masked."""

_GREY = 128

MAX_ANSWER_LENGTH = 10_000
"""In characters. A misbehaving server may write more."""


def check_trace_folder(folder: Path) -> None:
    """Raises DatasetError if `folder` exists and is not an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder} exists and is not an empty folder; choose another folder for the trace")


class TraceWriter:
    """Writes a trace to `folder`; a context manager. Each line is flushed before its method returns.

    If the block does not call `end`, its exception is written as the end of the trace. Raises DatasetError if `folder`
    exists and is not an empty folder.
    """

    def __init__(self, folder: Path, heading: Heading) -> None:
        check_trace_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.heading = folder, heading
        self._secrets, self._focus = Secrets(), Focus()
        self._pieces: dict[int, str] = {}
        self._hidden: dict[int, str] = {}
        self._shown: dict[Path, list[UiElement]] = {}
        self._file = (folder / STEPS).open("x", encoding="utf-8")  # of two runs that begin at once, one is refused
        self._write_heading()
        self._has_ended = False

    @property
    def id(self) -> str:
        return self.heading.id

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: object) -> None:
        try:
            if not self._has_ended and isinstance(error, KeyboardInterrupt):
                self.end("stopped", "stopped by Ctrl-C")
            elif not self._has_ended:
                self.end("error", "the run ended without a reason" if error is None else f"{kind.__name__}: {error}")
        finally:
            self._file.close()

    def screen(self, number: int, pixels: np.ndarray, elements: Sequence[UiElement] | None = None) -> Path:
        """Writes the screen of step `number`, uint8 (height, width, 3) RGB. Its line must name the file.

        `elements`: those of the screen; what they show of secrets is covered, also of those that are found later.
        """
        path = self.folder / _screen_name(number)
        path.write_bytes(encode_png(self._covered(path, pixels, elements or ())))
        return path

    def step(self, step: TraceStep, types_later: str = "") -> None:
        """Writes the line of a step. Call this before the action is performed. `types_later`: text that a later action
        of the same answer types, so that the answer is masked even if the run ends before."""
        self._note(step)
        if types_later and self._focus.is_secret(types_later, step.activity, step.elements):
            self._secrets.add(types_later, continues=False)
            self._mask_files()
        self._write(_step_line(step))

    def outcome(self, number: int, outcome: str, seconds: float = 0.0, message: str = "") -> None:
        """Writes the outcome of step `number`, one of `traces.OUTCOMES`, its duration in seconds, and why it failed."""
        why = {"message": _shortened(message)} if message else {}
        self._write({"of": number, "outcome": outcome, "seconds": seconds, **why})

    def device_action(self, action: Action) -> None:
        """Writes the line of an action that the device performs by itself. Call this before it is performed."""
        self._write({"device": _action_json(action)})

    def end(self, reason: str, message: str = "", **more) -> None:
        self._has_ended = True
        self._mask_files()  # also the last reply, if its step was not written
        self._write({"end": reason, "message": _shortened(message), **more})

    def judged(self, reached: bool | None) -> None:
        """Writes into the heading whether the goal was reached; None if it is not known."""
        self.heading = replace(self.heading, reached=reached)
        self._write_heading()

    def _write_heading(self) -> None:
        heading = asdict(replace(self.heading, goal=self._secrets.mask(self.heading.goal)))
        texts = {name: _encodable(text) for name, text in heading.items() if isinstance(text, str)}
        write_checked(self.folder / HEADING, {"version": VERSION, **heading, **texts})

    def _write(self, content: dict) -> None:
        line = _masked_line(content, self._secrets, self._hidden)
        self._file.write(sealed(json.dumps(line, ensure_ascii=False)) + "\n")
        self._file.flush()

    def _note(self, step: TraceStep) -> None:
        """Keeps in mind what is typed into which field.

        `_pieces`: what was typed into the field with the focus, by the number of the step. `_hidden`: the same of all
        steps that typed a secret.
        """
        action = step.action
        if action is not None and action.kind is ActionKind.TYPE and action.text:
            self._note_typing(step, action.text)
        if action is not None:
            focus = self._focus.after(action, step.activity, step.elements)
            if focus is not self._focus and not self._shows_secret(focus):
                self._pieces = {}
            self._focus = focus
        self._mask_files()

    def _note_typing(self, step: TraceStep, text: str) -> None:
        is_secret = self._focus.is_secret(text, step.activity, step.elements) or self._shows_secret(self._focus)
        self._pieces[step.number] = text
        if is_secret:
            self._hide({step.number: text} if has_card(text) else self._pieces)
        elif has_card("".join(self._pieces.values())):
            self._hide(self._pieces)

    def _hide(self, pieces: dict[int, str]) -> None:
        for place, (number, text) in enumerate(pieces.items()):
            self._secrets.add(text, continues=place > 0)
            self._hidden[number] = text

    def _shows_secret(self, focus: Focus) -> bool:
        """Whether the field with the focus shows what was typed into it as it is."""
        touched = None if focus.touch_yx is None else element_at(focus.elements, focus.touch_yx)
        return touched is not None and self._secrets.has_secret(touched.text)

    def _mask_files(self) -> None:
        """Masks the secrets in what was written before."""
        if not self._secrets.found:
            return
        for path, elements in self._shown.items():
            if any(self._secrets.has_secret(element.text) for element in elements):
                with atomic_write(path) as part:
                    part.write_bytes(encode_png(self._covered(path, checks.read_screen(path), elements)))
        for path in sorted(self.folder.rglob("*.json*")):
            try:
                before = path.read_text(encoding="utf-8")
                after = _masked_file(path, before, self._secrets, self._hidden)
            except ValueError:  # being written, or of another program
                continue
            if after == before:
                continue
            with atomic_write(path) as part:
                part.write_text(after, encoding="utf-8")
            if path == self.folder / STEPS:
                self._file.close()
                self._file = path.open("a", encoding="utf-8")

    def _covered(self, path: Path, pixels: np.ndarray, elements: Sequence[UiElement]) -> np.ndarray:
        """The picture without secrets. What the other elements show may turn out to be one."""
        secret = [element for element in elements if self._secrets.has_secret(element.text)]
        self._shown[path] = [element for element in elements if element not in secret]
        if not secret:
            return pixels
        covered, (height, width) = pixels.copy(), pixels.shape[:2]
        for y, x, box_height, box_width in (element.box for element in secret):
            rows = slice(max(0, int(y * height)), max(0, int(np.ceil((y + box_height) * height))))
            columns = slice(max(0, int(x * width)), max(0, int(np.ceil((x + box_width) * width))))
            covered[rows, columns] = _GREY
        return covered


@dataclass(frozen=True)
class NoTrace:
    """The trace of a run that is not kept, with the methods that a run calls; nothing is written. `id` distinguishes
    the run from others that the same agent answers at once."""

    id: str

    def screen(self, number: int, pixels: np.ndarray, elements: Sequence[UiElement] | None = None) -> Path:
        return Path(_screen_name(number))

    def step(self, step: TraceStep, types_later: str = "") -> None: ...

    def outcome(self, number: int, outcome: str, seconds: float = 0.0, message: str = "") -> None: ...

    def device_action(self, action: Action) -> None: ...

    def end(self, reason: str, message: str = "", **more) -> None: ...

    def judged(self, reached: bool | None) -> None: ...


Trace = TraceWriter | NoTrace


def _screen_name(number: int) -> str:
    return f"screen_{number:03d}.png"


def _masked(content: Any, secrets: Secrets, is_text: bool = False) -> Any:
    """JSON with secrets masked in the values of `_TEXTS`."""
    if isinstance(content, dict):
        return {key: _masked(value, secrets, is_text or key in _TEXTS) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_masked(value, secrets, is_text) for value in content]
    return secrets.mask(content) if is_text and isinstance(content, str) else content


def _masked_line(content: Any, secrets: Secrets, hidden: dict[int, str]) -> Any:
    """A line of the trace. In the lines of a step that typed a secret, also a short piece of it is masked."""
    masked = _masked(content, secrets)
    number = masked.get("step", masked.get("of")) if isinstance(masked, dict) else None
    if number not in hidden:
        return masked
    if "action" in masked:
        masked |= {"action": masked["action"] | {"text": MASK}}
    return _masked(masked, Secrets([hidden[number]]))


def _masked_file(path: Path, text: str, secrets: Secrets, hidden: dict[int, str]) -> str:
    """Raises ValueError for a text that is not JSON. Content without a secret is not formatted anew."""
    if path.suffix == ".jsonl":
        lines = text.split("\n")
        return "\n".join(_masked_json(line, secrets, hidden, None) if line else "" for line in lines)
    return _masked_json(text, secrets, {}, 1)


def _masked_json(text: str, secrets: Secrets, hidden: dict[int, str], indent: int | None) -> str:
    content = json.loads(text)
    masked = _masked_line(content, secrets, hidden)
    if masked == content:
        return text
    if isinstance(masked, dict) and masked.pop(CHECKSUM, None) is not None:
        return checked_bytes(masked).decode()
    if isinstance(masked, dict) and masked.pop("crc32", None) is not None:
        return sealed(json.dumps(masked, ensure_ascii=False))
    return json.dumps(masked, ensure_ascii=False, indent=indent) + "\n" * (indent is not None)


def _step_line(step: TraceStep) -> dict:
    """The line of a step as JSON, without its outcome."""
    elements = None
    if step.elements is not None:
        elements = [[*one.box, _encodable(one.text), _encodable(one.type)] for one in step.elements]
    notes = {name: _shortened(text) for name, text in step.notes.items() if text}
    return {
        "step": step.number,
        "screen": step.screen,
        "activity": _encodable(step.activity),
        "elements": elements,
        "said": _shortened(step.answer),
        "action": None if step.action is None else _action_json(step.action),
        "tokens": step.tokens,
        "seconds": step.seconds,
        **({"notes": notes} if notes else {}),
        **({"black": True} if step.black else {}),
    }


def _shortened(text: str) -> str:
    return _encodable(text[:MAX_ANSWER_LENGTH])


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _action_json(action: Action) -> dict:
    return {
        "kind": int(action.kind),
        **({"touch_yx": action.touch_yx} if action.kind.facts.points > 0 else {}),
        **({"lift_yx": action.lift_yx} if action.kind.facts.points > 1 else {}),
        **({"text": action.text} if action.kind.facts.has_text else {}),
    }
