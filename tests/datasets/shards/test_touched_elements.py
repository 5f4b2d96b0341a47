"""Names of touched elements, computed on arrays, are those that `element_at` returns for each screen."""

from dataclasses import replace

import numpy as np
from helpers import tiny
from helpers.models import tokenizers_of_all_kinds as kinds

from vlm_agent.action_languages import language_settings
from vlm_agent.datasets.shards.columns import touched_names, touched_numbers
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, Episode, Step, UiElement, element_at
from vlm_agent.geometry import nearest_box
from vlm_agent.training.data.token_counts import columns_for, count_tokens

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


def test_every_step_has_the_number_of_the_element_nearest_to_it(tmp_path):
    dataset = ShardDataset(tiny.write_shards(tmp_path, [episode(number) for number in range(5)]))
    steps = [step for one in dataset for step in one.steps]
    nearest = [nearest_box([element.box for element in step.elements], step.action.touch_yx) for step in steps]
    assert touched_numbers(dataset).tolist() == ["" if number is None else str(number) for number in nearest]
    assert {"0", "1", "2", ""} <= set(touched_numbers(dataset).tolist())


def test_tokens_of_numbers_are_counted_as_they_are_written(tmp_path):
    dataset = ShardDataset(tiny.write_shards(tmp_path, [episode(number) for number in range(3)]))
    language = language_settings({"name": "element_index"}).build()
    sentences = replace(tiny.sentences(kinds.byte_level()), language=language)
    counts = count_tokens(columns_for(dataset, sentences), sentences).whole
    assert counts.tolist() == [len(sentences.build(one)) for one in dataset]
