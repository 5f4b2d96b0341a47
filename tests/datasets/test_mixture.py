import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.datasets import selection as mixture
from vlm_agent.datasets.selection import check_mixture, check_subsets, in_mixture
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.errors import DatasetError

IDS = tuple(str(number) for number in range(4000))

_share = st.floats(0, 1)
_subset = st.sampled_from(SUBSETS)


def _kept(share, subset="google_apps"):
    return {id for id in IDS if in_mixture(id, subset, {subset: share})}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_about_the_share_is_kept(share):
    deviation = math.sqrt(share * (1 - share) * len(IDS))
    assert abs(len(_kept(share)) - share * len(IDS)) < 4 * deviation


def test_a_tenth_contains_the_same_episodes_everywhere():
    assert sorted(_kept(0.1), key=int)[:8] == ["9", "39", "49", "51", "55", "65", "101", "105"]


def test_membership_depends_only_on_the_hash_of_the_id():
    for id in IDS[:200]:
        position = int(hashlib.sha256(id.encode()).hexdigest()[:16], 16) / 2**64
        assert in_mixture(id, "general", {"general": 0.3}) == (position < 0.3)


@given(st.text(), _subset, _share, _share)
def test_a_larger_share_holds_every_smaller_one(id, subset, one, other):
    smaller, larger = sorted((one, other))
    assert in_mixture(id, subset, {subset: smaller}) <= in_mixture(id, subset, {subset: larger})


@given(st.text(), _subset, st.dictionaries(_subset, _share))
def test_a_share_is_that_of_its_subset_alone(id, subset, fractions):
    assert in_mixture(id, subset, fractions) == in_mixture(id, "single", {"single": fractions.get(subset, 1)})


@given(st.text(), _subset)
def test_a_subset_that_is_not_named_is_kept_whole(id, subset):
    assert in_mixture(id, subset, {})
    assert in_mixture(id, subset, {other: 0 for other in SUBSETS if other != subset})


@given(st.text(), _subset)
def test_no_share_keeps_nothing_and_a_whole_one_everything(id, subset):
    assert not in_mixture(id, subset, {subset: 0})
    assert in_mixture(id, subset, {subset: 1})


def test_a_whole_share_keeps_even_the_last_possible_position(monkeypatch):
    monkeypatch.setattr(mixture.hashlib, "sha256", lambda data: _Digest(b"\xff" * 32))
    assert in_mixture("1", "single", {"single": 1.0})
    assert not in_mixture("1", "single", {"single": math.nextafter(1, 0)})


class _Digest:
    def __init__(self, value):
        self._value = value

    def digest(self):
        return self._value


def test_a_tenth_of_a_tenth_is_unchanged():
    tenth = _kept(0.1)
    assert {id for id in tenth if in_mixture(id, "google_apps", {"google_apps": 0.1})} == tenth


@pytest.mark.parametrize("share", [-0.1, 1.1, 10, math.nan, math.inf, -math.inf])
def test_an_invalid_share_is_refused(share):
    with pytest.raises(DatasetError, match=f"fraction of install is {share}; it must be between 0 and 1"):
        check_mixture({"general": 0.5, "install": share})


def test_a_subset_that_does_not_exist_is_refused_and_the_known_ones_are_named():
    with pytest.raises(DatasetError, match=r"the mixture names apps, shopping; subsets are .*google_apps.*, kitchen"):
        check_subsets({"shopping": 0.5, "apps": 1, "general": 1, "kitchen": 1}, ["kitchen"], "the mixture")


@pytest.mark.parametrize("fractions", [{}, {"google_apps": 0.1}, dict.fromkeys(SUBSETS, 0), dict.fromkeys(SUBSETS, 1)])
def test_a_good_mixture_is_accepted(fractions):
    check_mixture(fractions)
