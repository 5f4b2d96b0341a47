"""The phone for TRL: `GRPOTrainer(environment_factory=Phone, …)`, a tool for each action.

TRL (1.16, `grpo_trainer.py`) lets every public method be called as a tool, passes the columns of the data set to
`reset` and appends its text to the prompt, and asks `get_reward` at the end of a rollout. A tool that raises shows the
model the message. The module imports nothing of TRL.
"""

from typing import Any

import numpy as np
from PIL import Image

from vlm_agent.agents import Answer
from vlm_agent.environments.play import LONGEST_TEXT, Play, PlayError, Tasks
from vlm_agent.episodes import Action

_THOUSANDTHS = 1000


class Phone:
    """One task on a simulated phone a rollout. Points are in thousandths of the screen's width (x) and height (y).

    The data set has a column `task`, such as general/train/7, so that a group of rollouts shares its task; a task of
    split test needs `allow_test`. `reset` returns the goal, `look` the first screen, and every action the next screen.
    """

    def __init__(self, allow_test: bool = False) -> None:
        self._tasks = Tasks(allow_test=allow_test)
        self._play: Play | None = None

    def reset(self, task: str | None = None, **_: Any) -> str:
        """A phone at the start of the task; other columns of the data set are ignored. Raises PlayError for an unknown
        task, and for a data set without tasks."""
        if task is None:
            raise PlayError("the data set has no column `task`; add one with tasks such as general/train/7")
        self._play = Play(self._tasks.named(task))
        return self._play.goal

    def get_reward(self) -> float:
        """1 if the goal is reached and the model has declared the expert's end, otherwise 0."""
        return self._current().reward

    def look(self) -> list:
        """Shows the screen of the phone. Does not change anything."""
        return self._shown()

    def tap(self, x: int, y: int) -> list:
        """Taps a point of the screen.

        Args:
            x: Thousandths of the screen's width from its left edge, 0 to 1000.
            y: Thousandths of the screen's height from its top, 0 to 1000.
        """
        return self._perform(Action.tap(_fraction("y", y), _fraction("x", x)))

    def swipe(self, x: int, y: int, to_x: int, to_y: int) -> list:
        """Moves a finger from one point of the screen to another, to scroll or to change the page.

        Args:
            x: Where the finger begins, in thousandths of the screen's width from its left edge.
            y: Where the finger begins, in thousandths of the screen's height from its top.
            to_x: Where the finger ends, in thousandths of the screen's width.
            to_y: Where the finger ends, in thousandths of the screen's height.
        """
        touch, lift = (_fraction("y", y), _fraction("x", x)), (_fraction("to_y", to_y), _fraction("to_x", to_x))
        return self._perform(Action.swipe(touch, lift))

    def long_press(self, x: int, y: int) -> list:
        """Holds a finger on a point of the screen.

        Args:
            x: Thousandths of the screen's width from its left edge, 0 to 1000.
            y: Thousandths of the screen's height from its top, 0 to 1000.
        """
        return self._perform(Action.long_press(_fraction("y", y), _fraction("x", x)))

    def type_text(self, text: str) -> list:
        """Types a text into the field that has the focus.

        Args:
            text: The text to type.
        """
        return self._perform(Action.type_text(_text(text)))

    def open_app(self, name: str) -> list:
        """Opens an app.

        Args:
            name: The name of the app, as the home screen shows it.
        """
        return self._perform(Action.open_app(_text(name)))

    def press_back(self) -> list:
        """Presses the back button."""
        return self._perform(Action.press("back"))

    def press_home(self) -> list:
        """Presses the home button."""
        return self._perform(Action.press("home"))

    def press_enter(self) -> list:
        """Presses the enter key of the keyboard."""
        return self._perform(Action.press("enter"))

    def press_recents(self) -> list:
        """Shows the apps that were used last."""
        return self._perform(Action.recents())

    def wait(self) -> list:
        """Waits until the screen has loaded."""
        return self._perform(Action.wait())

    def answer(self, text: str) -> list:
        """Answers a question of the user.

        Args:
            text: The answer.
        """
        return self._perform(Action.answer(_text(text)))

    def complete(self) -> list:
        """Declares that the task is done. Nothing can be done afterwards."""
        return self._perform(Action.complete())

    def impossible(self) -> list:
        """Declares that the task cannot be done on this phone. Nothing can be done afterwards."""
        return self._perform(Action.impossible())

    def _current(self) -> Play:
        if self._play is None:
            raise PlayError("the phone has no task; call reset first")
        return self._play

    def _perform(self, action: Action) -> list:
        self._current().answer(Answer("", action))
        return self._shown()

    def _shown(self) -> list:
        play = self._current()
        if play.outcome is not None:
            return [{"type": "text", "text": f"The task has ended: {play.outcome.ended}."}]
        return [{"type": "image", "image": Image.fromarray(np.asarray(play.screen.pixels))}]


def _fraction(name: str, value: Any) -> float:
    """A point's coordinate in screen fractions."""
    if not isinstance(value, int | float) or not 0 <= value <= _THOUSANDTHS:
        raise PlayError(f"{name} is {str(value)[:80]}; it must be a number from 0 to {_THOUSANDTHS}")
    return value / _THOUSANDTHS


def _text(text: Any) -> str:
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise PlayError(f"the text must be at most {LONGEST_TEXT} characters of text")
    return text
