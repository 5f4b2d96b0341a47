"""`vlm_agent/Phone-v0`, a Gymnasium environment: one task on a simulated phone an episode.

import gymnasium, vlm_agent.environments
env = gymnasium.make("vlm_agent/Phone-v0", split="train", templates=["go_home"], language="named")
observation, info = env.reset(options={"task": "general/train/7"})
observation, reward, terminated, truncated, info = env.step("tap at 30 12")
"""

import string
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import numpy as np

from vlm_agent.devices.acting.loop import STEP_LIMIT
from vlm_agent.environments.play import LONGEST_TEXT, Play, PlayError, Tasks, element_lines, language_named
from vlm_agent.files.installation import install_line
from vlm_agent.simulator.phone import SIZE

try:
    import gymnasium
    from gymnasium.error import InvalidAction, ResetNeeded
    from gymnasium.spaces import Box, Dict, Sequence, Text
except ImportError as error:
    raise PlayError(f"the environment needs Gymnasium ({error}); {install_line('gymnasium')}") from error

ID = "vlm_agent/Phone-v0"
_ASCII = frozenset(string.printable)
_LONGEST_ELEMENT = 1 << 14


class Phone(gymnasium.Env[dict[str, Any], str]):
    """The environment behind `vlm_agent/Phone-v0`.

    `split`, `templates`: the tasks of `reset`; `language`: the action language of `step`, a name in `LANGUAGES`;
    `allow_test`: permits tasks of split test, for evaluation. Raises PlayError for others.

    Observation: `screen`, uint8 (448, 208, 3) RGB; `goal`; `elements`, see `element_lines`. Action: any text, at most
    `LONGEST_TEXT` characters; a text that is not an action of the language is a failed step, which ends the episode
    (`Play`). Reward: 1 at the end of a success, otherwise 0. An episode is truncated at the limit of steps, and
    terminated by every other end. `info`: `task`, `template`, and at the end the fields of `Outcome`.

    Gymnasium's `AsyncVectorEnv` needs `shared_memory=False`, as it says itself.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        split: str = "train",
        templates: Collection[str] | None = None,
        language: str = "named",
        allow_test: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.tasks = Tasks(split, templates, allow_test)
        self.language = language_named(language)
        self.render_mode = render_mode
        self.observation_space = Dict(
            {
                "screen": Box(0, 255, (*SIZE, 3), np.uint8),
                "goal": Text(1024, charset=_ASCII),
                "elements": Sequence(Text(_LONGEST_ELEMENT, charset=_ASCII)),
            }
        )
        self.action_space = Text(LONGEST_TEXT, min_length=0, charset=_ASCII)
        self._play: Play | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A phone at the start of a task: that of `options`, {"task": "general/train/7"}, else one drawn by `seed`.
        Raises PlayError for an unknown task, and for other options."""
        super().reset(seed=seed)
        options = options or {}
        if unknown := set(options) - {"task"}:
            raise PlayError(f"reset has no option {', '.join(sorted(map(repr, unknown)))}; its option is 'task'")
        number = int(self.np_random.integers(1 << 32))
        self._play = Play(self.tasks.named(options["task"]) if options else self.tasks.drawn(number))
        return self._observation(self._play), self._info(self._play)

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Raises Gymnasium's ResetNeeded before `reset` and after the end, and InvalidAction for what is not a text."""
        play = self._play
        if play is None or play.outcome is not None:
            raise ResetNeeded("the phone has no task in progress; call reset first")
        if not isinstance(action, str):
            raise InvalidAction(f"an action is a text of the language, not {type(action).__name__}")
        play.write(action, self.language)
        ended = None if play.outcome is None else play.outcome.ended
        truncated = ended == STEP_LIMIT
        is_end = ended is not None
        return self._observation(play), play.reward, is_end and not truncated, truncated, self._info(play)

    def render(self) -> np.ndarray:
        """The screen. Raises Gymnasium's ResetNeeded before `reset`."""
        if self._play is None:
            raise ResetNeeded("the phone has no task in progress; call reset first")
        return np.array(self._play.screen.pixels)

    def _observation(self, play: Play) -> dict[str, Any]:
        # A copy: the play recognises a repeated action by the pixels, on which a wrapper may draw.
        pixels = np.array(play.screen.pixels)
        return {"screen": pixels, "goal": play.goal, "elements": element_lines(play.screen)}

    def _info(self, play: Play) -> dict[str, Any]:
        info = {"task": play.task.name, "template": play.task.template}
        return info if play.outcome is None else info | asdict(play.outcome)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:{Phone.__name__}")
