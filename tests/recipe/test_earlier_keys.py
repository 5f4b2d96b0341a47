"""Recorded keys of an earlier version are those of the current one."""

from typing import ClassVar

from vlm_agent.recipe.earlier_keys import in_current_terms
from vlm_agent.settings import Section


class Inner(Section):
    RENAMED: ClassVar = {"errands": "walks"}
    REMOVED: ClassVar = {"dense": 0}

    walks: int = 2
    share: float = 0.5


class Outer(Section):
    name: str
    drawn: Inner = Inner()


def test_renamed_keys_get_their_names_removed_ones_go_and_new_ones_have_their_defaults():
    recipe = Outer(name="a")
    keys = {"name": "a", "drawn.walks": 2, "drawn.share": 0.5}
    recorded = {"name": "a", "drawn.errands": 7, "drawn.dense": 0}
    assert in_current_terms(recorded, recipe, keys) == {"name": "a", "drawn.walks": 7, "drawn.share": 0.5}
    assert in_current_terms({"name": "a", "drawn.walks": 7}, recipe, keys)["drawn.walks"] == 7


def test_a_removed_key_with_another_value_than_today_remains_a_difference():
    recorded = {"name": "a", "drawn.dense": 4}
    assert in_current_terms(recorded, Outer(name="a"), {"name": "a"}) == recorded
