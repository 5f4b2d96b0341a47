"""What a review shows and stores: steps with their texts, edits and findings. Thread-safe."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vlm_agent.annotation.annotator import MOST_CHARACTERS, TEXTS, clean_text
from vlm_agent.annotation.check import check_step
from vlm_agent.annotation.edits import Edit, EditStore, EpisodeEdits
from vlm_agent.annotation.job.finish import read_findings
from vlm_agent.annotation.job.settings import WORK
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.drawing.actions import EXPERT, describe, draw_action, draw_elements
from vlm_agent.drawing.shapes import scaled
from vlm_agent.episodes import Episode
from vlm_agent.files.png import encode_png

_HEIGHT = 1000
"""Pixels of a shown screen."""

EPISODES_PER_PAGE = 50


class UnknownStepError(Exception):
    """The annotation has no such episode or step."""


class InvalidEditError(Exception):
    """The message says what is wrong with an edit."""


@dataclass(frozen=True)
class ShownStep:
    """A step on the page. `problem`: of its action description, None without one. `has_next`: a later screen exists.
    `texts`: by name (`TEXTS`). `plan`: the lines of the plan, `planned`: the immediate step; shown, not edited.

    `next`, `previous`, `next_open`, `next_finding`: (episode, step) or None.
    """

    episode: int
    number: int
    episode_id: str
    subset: str
    goal: str
    length: int
    action: str
    texts: Mapping[str, str]
    plan: tuple[str, ...]
    planned: str
    accepted: bool
    edited: tuple[str, ...]
    problem: str | None
    next: tuple[int, int] | None
    previous: tuple[int, int] | None
    next_open: tuple[int, int] | None
    next_finding: tuple[int, int] | None

    @property
    def has_next(self) -> bool:
        return self.number + 1 < self.length

    @property
    def states(self) -> dict[str, str]:
        """A remark on each text: that it was edited, or that it was written before the action was."""
        is_open = "action" in self.edited and not self.accepted
        earlier = {name: "written for the earlier action" for name in ("think", "result") if is_open}
        return dict.fromkeys(TEXTS, "") | earlier | dict.fromkeys(self.edited, "edited")


@dataclass(frozen=True)
class ListedStep:
    accepted: bool
    edited: bool
    problem: str | None


@dataclass(frozen=True)
class ListedEpisode:
    number: int
    episode_id: str
    subset: str
    goal: str
    steps: tuple[ListedStep, ...]


class ReviewSession:
    """A review of the complete annotation in `output`. Nothing but the edits in its working folder is written."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._dataset = ShardDataset(output)
        self._store = EditStore(output / WORK)
        self._edits: dict[str, EpisodeEdits] = {name: self._store.load(name) for name in self._dataset.ids}
        findings = [finding for finding in read_findings(output) if not finding.is_of_plan]
        self._problems = {(finding.episode_id, finding.step): finding.problem for finding in findings}
        self._position = {name: index for index, name in enumerate(self._dataset.ids)}
        self._lock = threading.Lock()

    @property
    def facts(self) -> dict[str, str]:
        return {"shards": str(self.output), "texts by": self._dataset.manifest["annotation"]["model"]}

    @property
    def pages(self) -> int:
        return -(-len(self._dataset) // EPISODES_PER_PAGE)

    def counts(self) -> dict[str, int]:
        """Numbers of steps: all, accepted, edited, with a finding."""
        with self._lock:
            edits = [edit for episode in self._edits.values() for edit in episode.values()]
            return {
                "steps": self._dataset.manifest["steps_written"],
                "accepted": sum(edit.accepted for edit in edits),
                "edited": sum(bool(edit.texts) for edit in edits),
                "findings": len(self._problems),
            }

    def listed(self, page: int) -> list[ListedEpisode]:
        """The episodes of a page, from 0. Raises UnknownStepError for another page."""
        if not 0 <= page < self.pages:
            raise UnknownStepError
        first = page * EPISODES_PER_PAGE
        return [self._listed(index) for index in range(first, min(first + EPISODES_PER_PAGE, len(self._dataset)))]

    def step(self, episode: int, number: int) -> ShownStep:
        """Raises UnknownStepError."""
        self._check(episode, number)
        content = self._dataset.without_pixels(episode)
        edit = self._edit(content.id, number)
        place = (episode, number)
        return ShownStep(
            episode,
            number,
            content.id,
            content.subset,
            content.goal,
            len(content),
            describe(content.steps[number].action),
            self._texts(content, number, edit),
            tuple(filter(None, content.steps[number].notes.get("plan", "").split("\n"))),
            content.steps[number].notes.get("step", ""),
            edit.accepted,
            tuple(edit.texts),
            self._problems.get((content.id, number)),
            self._moved(place, 1),
            self._moved(place, -1),
            self.next_open(place),
            self._next_finding(place),
        )

    def next_open(self, after: tuple[int, int] | None = None) -> tuple[int, int] | None:
        """The first step that is not accepted, after a step or from the start; None if all others are accepted."""
        ids = self._dataset.ids
        first, start = (0, -1) if after is None else after
        for offset in range(len(ids) + 1):
            episode = (first + offset) % len(ids)
            for number in range(start + 1 if not offset else 0, self._length(episode)):
                if (episode, number) == after:
                    return None
                if not self._edit(ids[episode], number).accepted:
                    return episode, number
        return None

    def save(self, episode: int, number: int, texts: Mapping[str, str], accepted: bool) -> ShownStep:
        """Stores those of `texts` that differ. Raises UnknownStepError and InvalidEditError."""
        self._check(episode, number)
        content = self._dataset.without_pixels(episode)
        with self._lock:
            edit = self._edit(content.id, number)
            shown = self._texts(content, number, edit)
            changed = {name: _cleaned(texts[name]) for name in texts if _lines(texts[name]) != _lines(shown[name])}
            edit = Edit({**edit.texts, **changed}, accepted)
            self._store.save(content.id, number, edit)
            self._edits[content.id][number] = edit
            problem = check_step(replace(content.steps[number], notes={**content.steps[number].notes, **edit.texts}))
            if problem is None:
                self._problems.pop((content.id, number), None)
            else:
                self._problems[content.id, number] = problem
        return self.step(episode, number)

    def picture(self, episode: int, number: int, action: bool, boxes: bool) -> bytes:
        """The screen of a step as a PNG, with the action or the elements drawn. Raises UnknownStepError."""
        self._check(episode, number)
        step = self._dataset.step(episode, number)
        if step.screenshot is None:
            raise AssertionError("a step of shards has pixels")
        screen = scaled(step.screenshot, _HEIGHT)
        if boxes:
            screen = draw_elements(screen, step.elements)
        if action:
            screen = draw_action(screen, step.action, EXPERT, elements=step.elements)
        return encode_png(np.asarray(screen))

    def _check(self, episode: int, number: int) -> None:
        if not (0 <= episode < len(self._dataset) and 0 <= number < self._length(episode)):
            raise UnknownStepError

    def _length(self, episode: int) -> int:
        return len(self._dataset.screen_sizes[episode])

    def _edit(self, name: str, number: int) -> Edit:
        return self._edits[name].get(number, Edit())

    def _texts(self, content: Episode, number: int, edit: Edit) -> dict[str, str]:
        known = {**content.steps[number].notes, **edit.texts}
        return {name: known.get(name, "") for name in TEXTS}

    def _listed(self, index: int) -> ListedEpisode:
        content = self._dataset.without_pixels(index)
        steps = tuple(
            ListedStep(edit.accepted, bool(edit.texts), self._problems.get((content.id, number)))
            for number in range(len(content))
            for edit in [self._edit(content.id, number)]
        )
        return ListedEpisode(index, content.id, content.subset, content.goal, steps)

    def _moved(self, place: tuple[int, int], by: int) -> tuple[int, int] | None:
        episode, number = place[0], place[1] + by
        if 0 <= number < self._length(episode):
            return episode, number
        if not 0 <= episode + by < len(self._dataset):
            return None
        return episode + by, 0 if by > 0 else self._length(episode + by) - 1

    def _next_finding(self, place: tuple[int, int]) -> tuple[int, int] | None:
        """The next step with a finding, from the start again after the last one; None without another one."""
        with self._lock:
            places = [(self._position[name], step) for name, step in self._problems]
        later = [other for other in places if other > place]
        earlier = [other for other in places if other < place]
        return min(later or earlier, default=None)


def _lines(text: str) -> str:
    """The lines as a browser returns the text of a form."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _cleaned(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise InvalidEditError(f"a text has {len(text):,} characters, and may have {MOST_CHARACTERS:,}")
    return clean_text(text)
