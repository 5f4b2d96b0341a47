"""Nothing that tells how an episode goes is in two splits of the simulated phone."""

import pytest

from studies.simulated_phone.leakage import MUST_BE_ZERO, Held, leakage, shared_with_train


@pytest.fixture(scope="module")
def figures():
    return leakage(episodes=250, drawn=3)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_no_goal_no_phone_and_no_id_is_in_train_too(figures, split):
    assert figures["train_episodes"] == 2000
    assert figures[split]["episodes"] == 250
    assert [figures[split][what] for what in MUST_BE_ZERO] == [0, 0, 0, 0]


def test_a_leak_would_be_seen():
    train = Held(["Open  Maps", "Buy milk"], {1, 2}, {"1", "2"})
    test = Held(["open maps", "open maps", "go"], {2, 3}, {"2", "3"})
    train.screens.update("ab")
    test.screens.update("abbc")
    found = shared_with_train(train, "test", test)
    assert [found[what] for what in MUST_BE_ZERO] == [1, 2, 1, 1]
    assert (found["screens"], found["screen_kinds"], found["screens_percent"]) == (3, 2, 75.0)
