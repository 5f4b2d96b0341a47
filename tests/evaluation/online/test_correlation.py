"""Scores that go together."""

import numpy as np
import pytest
from helpers.evaluation.correlation import correlate_success, correlation


def test_pearson_is_numpys_and_spearman_that_of_the_ranks():
    rng = np.random.default_rng(0)
    first = rng.normal(size=40)
    second = first + rng.normal(size=40)
    found = correlation(first, second)
    assert found["n"] == 40
    assert found["pearson"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    ranks = [np.argsort(np.argsort(side)) for side in (first, second)]
    assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_rank_correlation_does_not_depend_on_distances():
    found = correlation([1, 2, 3, 4], [1, 10, 100, 1000])
    assert found["spearman"] == pytest.approx(1)
    assert found["pearson"] < 0.95


def test_ties_share_the_mean_of_their_ranks():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert correlation([1, 5, 5, 9], [1, 2, 3, 4])["spearman"] == pytest.approx(4.5 / np.sqrt(4.5 * 5))


@pytest.mark.parametrize(("first", "second"), [([], []), ([1], [2]), ([1, 2, 3], [5, 5, 5])])
def test_constant_values_have_no_correlation(first, second):
    assert correlation(first, second) == {"n": len(first), "pearson": None, "spearman": None}


def test_every_score_is_correlated_with_success():
    rows = [{"partial": 10, "complete": 5, "success": 1}, {"partial": 20, "complete": 4, "success": 2}]
    found = correlate_success(rows)
    assert found["partial"]["pearson"] == pytest.approx(1)
    assert found["complete"]["pearson"] == pytest.approx(-1)
    assert correlate_success([]) == {}


def test_scores_without_a_partner_are_refused():
    with pytest.raises(ValueError, match="2 scores"):
        correlation([1, 2], [1])
