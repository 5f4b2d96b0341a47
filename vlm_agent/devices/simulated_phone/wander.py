"""A phone left somewhere: whatever a few touches without a goal lead to."""

import random

from vlm_agent.devices.simulated_phone.phone import SimulatedPhone, some_popup
from vlm_agent.episodes import Action

LONGEST_WALK = 3
_HOME, _SHADE, _POPUP, _SWIPE, _TYPE = 0.2, 0.06, 0.06, 0.15, 0.6


def wander(phone: SimulatedPhone, rng: random.Random, words: list[str]) -> None:
    """Open an app, or stay at home; touch this and that; type some of `words` where a keyboard comes up."""
    if rng.random() > _HOME:
        phone.open(rng.choice(phone.installed))
        phone.popup = None
    for _ in range(rng.randint(0, LONGEST_WALK)):
        _touch(phone, rng, words)
    chance = rng.random()
    if chance < _SHADE:
        phone.shade = True
    elif chance < _SHADE + _POPUP and phone.focus is None:
        phone.popup = some_popup(phone.front, rng)
    phone.changed()


def _touch(phone: SimulatedPhone, rng: random.Random, words: list[str]) -> None:
    if phone.focus is not None and rng.random() < _TYPE:
        phone.type_text(" ".join(rng.sample(words, rng.randint(1, 3))))
    elif rng.random() < _SWIPE:
        phone.perform(Action.swipe((0.75, 0.5), (0.35, 0.5)))
    else:
        targets = [target for target in phone.canvas().targets if target.on_tap is not None]
        if targets:
            rng.choice(targets).on_tap()
    phone.changed()
