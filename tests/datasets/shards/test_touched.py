"""Names of touched elements, computed on arrays, are those that `element_at` returns for each screen."""

import numpy as np
from helpers import tiny

from vlm_agent.datasets.shards.columns import touched_names
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, Episode, Step, UiElement, element_at

NESTED = (
    UiElement((0.0, 0.0, 1.0, 1.0), "page"),
    UiElement((0.25, 0.25, 0.5, 0.5), "card"),
    UiElement((0.25, 0.25, 0.25, 0.25), "", "ICON_GEAR"),
    UiElement((0.25, 0.25, 0.25, 0.25), "its twin"),
)
SCREENS = (NESTED, NESTED[1:], (), (UiElement((0.5, 0.0, 0.5, 1.0), " two  words "),))


def episode(number: int) -> Episode:
    rng = np.random.default_rng(number)
    pixels = np.zeros((20, 12, 3), np.uint8)
    points = [(0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (0.1, 0.9), *rng.random((8, 2)).astype(np.float32).tolist()]
    steps = [Step(pixels, Action.tap(*point), screen) for point in points for screen in SCREENS]
    return Episode(str(number), "general", "goal", tuple(steps))


def wanted(dataset: ShardDataset) -> list[str]:
    found = [element_at(step.elements, step.action.touch_yx) for one in dataset for step in one.steps]
    return ["" if element is None else element.name for element in found]


def test_every_step_has_the_name_of_the_smallest_element_under_it(tmp_path):
    dataset = ShardDataset(tiny.write_shards(tmp_path, [episode(number) for number in range(5)]))
    names = touched_names(dataset)
    assert names.tolist() == wanted(dataset)
    assert {"page", "card", "ICON_GEAR", " two  words ", ""} == set(names.tolist())


def test_of_some_episodes_those_names_alone(tmp_path):
    folder = tiny.write_shards(tmp_path, [episode(number) for number in range(4)])
    none = ShardDataset(folder, subset="install")
    assert touched_names(none).tolist() == []
