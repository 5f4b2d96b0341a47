"""A phone that is off or locked records what it receives and does nothing."""

import pytest

from vlm_agent.devices.adb_daemon import Handset
from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.episodes import Action


@pytest.mark.parametrize(
    ("is_awake", "is_locked", "reacts"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_a_phone_that_is_on_and_unlocked_reacts_to_touches_and_keys(is_awake, is_locked, reacts):
    handset, performed, pressed = Handset(SimulatedPhone(7)), [], []
    handset.listeners.append(performed.append)
    handset.is_awake, handset.is_locked = is_awake, is_locked
    before = handset.phone.screenshot()
    swipe = Action.swipe((0.8, 0.5), (0.2, 0.5))
    handset.perform(swipe)
    handset.press_key(lambda: pressed.append("key"))
    assert list(handset.actions) == [swipe]
    assert performed == [swipe] * reacts
    assert pressed == ["key"] * reacts
    assert reacts or (handset.phone.screenshot() == before).all()
