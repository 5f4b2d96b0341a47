import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.datasets.statistics.leakage import LeakedGoal, find_leaks, normalise


def _leaks(pairs, **options):
    goals, splits = (np.array(column, object) for column in zip(*pairs, strict=True))
    return find_leaks(goals, splits, **options)


PAIRS = [
    ("open maps", "train"),
    ("Open  Maps", "train"),
    ("buy milk", "train"),
    ("only here", "train"),
    ("OPEN maps ", "test"),
    ("open\tmaps", "test"),
    ("Buy milk", "test"),
    ("buy bread", "test"),
    ("buy bread", "validation"),
]


def test_case_and_white_space_do_not_make_another_goal():
    leak = _leaks(PAIRS)["test"]
    assert (leak.goals, leak.goals_seen) == (3, 2)
    assert (leak.episodes, leak.episodes_seen, leak.share) == (4, 3, 75.0)


def test_a_goal_only_in_held_out_splits_is_not_a_leak():
    leak = _leaks(PAIRS)["validation"]
    assert (leak.goals_seen, leak.episodes_seen, leak.share, leak.most_frequent) == (0, 0, 0.0, ())


def test_the_most_frequent_leaks_come_first_as_the_held_out_split_writes_them():
    first, second = _leaks(PAIRS)["test"].most_frequent
    assert (first.held_out, first.train) == (2, 2)
    assert first.goal in ("OPEN maps ", "open\tmaps")
    assert second == LeakedGoal("Buy milk", 1, 1)
    assert len(_leaks(PAIRS, shown=1)["test"].most_frequent) == 1


def test_without_train_or_without_the_others_there_is_nothing_to_compare():
    assert _leaks([("a", "test"), ("a", "validation")]) == {}
    assert _leaks([("a", "train")]) == {}
    assert find_leaks(np.array([], object), np.array([], object)) == {}


@given(st.lists(st.tuples(st.sampled_from(["a", "A ", "b", " B", "c d", "C  d"]), st.sampled_from(["train", "test"]))))
def test_counts_are_those_of_comparing_every_pair(pairs):
    train = {normalise(goal) for goal, split in pairs if split == "train"}
    test = [normalise(goal) for goal, split in pairs if split == "test"]
    leaks = _leaks(pairs) if pairs else {}
    assert ("test" in leaks) == (bool(train) and bool(test))
    if leaks:
        assert leaks["test"].goals_seen == len(set(test) & train)
        assert leaks["test"].episodes_seen == sum(goal in train for goal in test)
