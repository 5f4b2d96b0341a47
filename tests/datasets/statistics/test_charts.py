import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.datasets.statistics.page import HEIGHT, WIDTH, histograms, shades

VALUES = st.lists(st.integers(0, 20_000), min_size=1, max_size=200)


@given(VALUES)
def test_every_value_is_in_exactly_one_bar(values):
    (chart,) = histograms({"a": np.array(values)}).values()
    for bar in chart.bars:
        assert bar.count == sum(bar.first <= value and (bar.last is None or value <= bar.last) for value in values)
    assert sum(bar.count for bar in chart.bars) == len(values)


@given(VALUES, st.integers(1, 40_000))
def test_bars_ticks_and_limit_stay_on_the_plot(values, limit):
    (chart,) = histograms({"a": np.array(values)}, limit).values()
    assert len(chart.bars) <= 100
    assert all(bar.x + bar.width <= WIDTH + 0.1 and bar.height <= HEIGHT for bar in chart.bars)
    assert all(0 <= x <= WIDTH for x, _ in chart.ticks)
    assert chart.limit_x is None or 0 <= chart.limit_x <= WIDTH


def test_one_axis_serves_all_and_outliers_do_not_stretch_it():
    many = np.repeat(np.arange(1, 21), 100)
    charts = histograms({"a": many, "b": np.array([3, 5000])})
    assert charts["a"].bars[-1].first == charts["b"].bars[-1].first < 100
    assert charts["b"].bars[-1].last is None
    assert charts["a"].bars[-1].last is not None


def test_a_budget_just_beyond_the_values_is_shown_and_a_far_one_is_not():
    values = {"a": np.arange(1000)}
    assert histograms(values, 1500)["a"].limit_x is not None
    assert histograms(values, 50_000)["a"].limit_x is None


def test_what_has_no_value_has_no_chart():
    assert histograms({"a": np.zeros(0, np.int64)}) == {}
    assert list(histograms({"a": np.zeros(0, np.int64), "b": np.array([1])})) == ["b"]


def test_each_tapped_cell_is_drawn_once_and_the_fullest_is_opaque():
    counts = np.zeros((4, 3), np.int64)
    counts[0, 0], counts[2, 1], counts[3, 2] = 100, 25, 1
    drawn = {}
    for opacity, path in shades(counts):
        for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", path):
            assert (int(y), int(x)) not in drawn
            drawn[int(y), int(x)] = opacity
    assert drawn.keys() == {(0, 0), (2, 1), (3, 2)}
    assert drawn[0, 0] == 1.0
    assert drawn[2, 1] == pytest.approx(0.5)
    assert 0 < drawn[3, 2] < 0.5


def test_an_empty_map_draws_nothing():
    assert shades(np.zeros((4, 3), np.int64)) == []
