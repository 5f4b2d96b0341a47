"""Columns of a whole data set as flat arrays, for statistics. Pixels are not read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import IN_STEPS, notes_of
from vlm_agent.episodes import ACTION_NAMES, ActionKind
from vlm_agent.geometry import are_taps, boxes_at, directions, nearest_boxes

_EPISODE_COLUMNS = ("subset", "split", "goal")
_STEP_COLUMNS = ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")


@dataclass(frozen=True)
class Columns:
    """E episodes with S steps in total, in the order of the data set. The steps of an episode are adjacent.

    `subset`, `split`, `goal`: str objects (E,). `lengths`: int64 (E,), steps per episode. `height`, `width`: int32
    (S,), pixels. `action_kind`: int8 (S,). `touch_yx`, `lift_yx`: float32 (S, 2), (y, x) in fractions of the screen.
    `text`: Arrow strings (S), the text of the action. `touched`: str objects (S,) from `touched_names` or
    `touched_numbers`, or None.
    `in_words`: str objects (S,), the line of each step as an earlier one, where the language numbers elements, or None.
    `coat`: str objects (S,) by part of `CoatRecipe`, the texts of CoAT that a sentence has at each step, or None.
    `plan`: str objects (S,), the lines of plans of a sentence, by their place (`training/data/thoughts/plans.py`), or
    None.
    `elements`: from `listed_elements`, or None.
    `references`: str objects (E, K), lines of other episodes in a sentence (`training/data/references.py`), or None.
    """

    subset: np.ndarray
    split: np.ndarray
    goal: np.ndarray
    lengths: np.ndarray
    height: np.ndarray
    width: np.ndarray
    action_kind: np.ndarray
    touch_yx: np.ndarray
    lift_yx: np.ndarray
    text: pa.StringArray
    touched: np.ndarray | None = None
    in_words: np.ndarray | None = None
    coat: Mapping[str, np.ndarray] | None = None
    plan: Mapping[tuple[str, str, str], np.ndarray] | None = None
    elements: pa.ChunkedArray | None = None
    references: np.ndarray | None = None

    @cached_property
    def subsets(self) -> list[str]:
        """The subsets that have episodes, by name."""
        return sorted(set(self.subset.tolist()))

    @cached_property
    def action(self) -> np.ndarray:
        """Index into `ACTION_NAMES` of each step's `Action.name`, int64 (S,)."""
        is_tap = are_taps(self.touch_yx, self.lift_yx)
        names = np.where(is_tap, ACTION_NAMES.index("tap"), ACTION_NAMES.index("swipe"))
        for kind in set(ActionKind) - {ActionKind.DUAL_POINT}:
            names[self.action_kind == kind] = ACTION_NAMES.index(kind.short_name)
        return names

    @cached_property
    def direction(self) -> np.ndarray:
        """Index into `DIRECTIONS` of each swipe's `Action.direction`, int64 (S,); arbitrary for other steps."""
        return directions(self.touch_yx, self.lift_yx)

    def steps_of(self, subset: str) -> np.ndarray:
        """bool (S,): whether a step's episode belongs to the subset."""
        return np.repeat(self.subset == subset, self.lengths)

    def steps_that(self, action: str) -> np.ndarray:
        """bool (S,): whether a step's action has this name, one of `ACTION_NAMES`."""
        return self.action == ACTION_NAMES.index(action)


def read_columns(dataset: ShardDataset, episodes: Sequence[int] | None = None) -> Columns:
    """Reads the columns of every episode, or of `episodes` (numbers in ascending order), except `touched`."""
    table = dataset.table([*_EPISODE_COLUMNS, *(IN_STEPS + name for name in _STEP_COLUMNS)], episodes)
    listed = table["steps"].combine_chunks()
    steps = listed.flatten()
    return Columns(
        **{name: table[name].to_numpy() for name in _EPISODE_COLUMNS},
        lengths=np.diff(listed.offsets.to_numpy()).astype(np.int64),
        **{name: steps.field(name).to_numpy() for name in ("height", "width", "action_kind")},
        **{name: steps.field(name).flatten().to_numpy().reshape(-1, 2) for name in ("touch_yx", "lift_yx")},
        text=steps.field("text"),
    )


def note_texts(
    dataset: ShardDataset, names: Sequence[str], episodes: Sequence[int] | None = None
) -> dict[str, np.ndarray]:
    """Texts of `Step.notes` by name, str objects (S,) each; empty where the source has none."""
    steps = dataset.table([IN_STEPS + "notes"], episodes)["steps"].combine_chunks().flatten().field("notes").to_pylist()
    notes = [notes_of(of_step) for of_step in steps]
    return {name: np.array([of_step.get(name, "") for of_step in notes], object) for name in names}


def listed_elements(dataset: ShardDataset, episodes: Sequence[int] | None = None) -> pa.ChunkedArray:
    """The elements of each step's screen, lists (S,) of structs with `box`, `text` and `type`."""
    steps = dataset.table([IN_STEPS + "elements"], episodes)["steps"]
    chunks = [chunk.flatten().field("elements") for chunk in steps.chunks]
    return pa.chunked_array(chunks, steps.type.value_type.field("elements").type)


def touched_names(dataset: ShardDataset, episodes: Sequence[int] | None = None) -> np.ndarray:
    """The name of the smallest element under each step's touch point, str objects (S,); empty without such an element.

    Steps are in the order of the data set. Only the names of taps are meaningful.
    """
    steps = dataset.table([IN_STEPS + "touch_yx", IN_STEPS + "elements"], episodes)["steps"]
    # One chunk at a time: the elements of millions of screens take many gigabytes.
    return np.concatenate([np.zeros(0, object), *(_names_in(chunk.flatten()) for chunk in steps.chunks)])


def touched_numbers(dataset: ShardDataset, episodes: Sequence[int] | None = None) -> np.ndarray:
    """The number of the element nearest to each step's touch point, in decimal digits, str objects (S,); empty on a
    screen without one. Otherwise as `touched_names`."""
    steps = dataset.table([IN_STEPS + "touch_yx", IN_STEPS + "elements"], episodes)["steps"]
    return np.concatenate([np.zeros(0, object), *(_numbers_in(chunk.flatten()) for chunk in steps.chunks)])


def _numbers_in(steps: pa.StructArray) -> np.ndarray:
    points, boxes, screen = _touches_and_boxes(steps)
    nearest = nearest_boxes(points, boxes, screen)
    first = np.searchsorted(screen, np.arange(len(steps)))
    numbers = np.full(len(steps), "", object)
    found = nearest >= 0
    numbers[found] = [str(number) for number in (nearest - first)[found].tolist()]
    return numbers


def _touches_and_boxes(steps: pa.StructArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Touch points float64 (S, 2), boxes float64 (P, 4) of all screens, and the step of each box int (P,)."""
    elements = steps.field("elements")
    screen = np.repeat(np.arange(len(steps)), np.diff(elements.offsets.to_numpy()))
    boxes = elements.flatten().field("box").flatten().to_numpy().reshape(-1, 4).astype(np.float64)
    points = steps.field("touch_yx").flatten().to_numpy().reshape(-1, 2).astype(np.float64)
    return points, boxes, screen


def _names_in(steps: pa.StructArray) -> np.ndarray:
    under = boxes_at(*_touches_and_boxes(steps))
    found = steps.field("elements").flatten().take(pa.array(under[under >= 0]))
    names = np.full(len(steps), "", object)
    pairs = zip(found.field("text").to_pylist(), found.field("type").to_pylist(), strict=True)
    names[under >= 0] = [text or kind for text, kind in pairs]
    return names
