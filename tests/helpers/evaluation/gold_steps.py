"""Gold steps by hand, and answers to them."""

from dataclasses import replace

import numpy as np

from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import Prediction


def answered(gold, predicted):
    """The gold steps with these predicted actions."""
    return [replace(row, predicted=action, text=repr(action)) for row, action in zip(gold, predicted, strict=True)]


def episode(episode_id, subset, actions, elements=()):
    """Gold steps of one episode, unanswered."""
    return [
        Prediction(episode_id, subset, f"do {episode_id}", index, len(actions), action, elements, "", None)
        for index, action in enumerate(actions)
    ]


def random_action(rng, elements=()):
    kind = rng.choice(["tap", "swipe", "type", "other"], p=[0.5, 0.2, 0.12, 0.18])
    if kind == "tap":
        point = elements[rng.integers(len(elements))].centre_yx if elements and rng.random() < 0.8 else rng.random(2)
        return Action.tap(*np.clip(point, 0, 1).tolist())
    if kind == "swipe":
        return Action.swipe(tuple(rng.random(2).tolist()), tuple(rng.random(2).tolist()))
    if kind == "type":
        return Action.type_text(str(rng.choice(["milk", "bread", "a new phone"])))
    others = [Action.press("back"), Action.press("home"), Action.press("enter"), Action.complete(), Action.impossible()]
    return others[rng.integers(5)]
