"""Whole trajectories as one sentence (Smartphone Assistant, section 3.1.1 and figure 1).

    goal  screen 1  action 1 end  screen 2  action 2 end  …

All actions of the episode are supervised in one forward pass: by causal attention, action t depends on exactly what an
agent knows at step t. Token ids are built segment by segment with the same tokenizer calls that an agent makes when it
acts, so training and acting cannot differ, and labels are known by construction.

The target of a swipe is the element that it brings into view, found in hindsight from the next tap. An agent does not
know it in advance. So a target may be supervised, but it is never part of a history, where a swipe is the
gesture alone (`TrajectorySentences.build`).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.names import spoken_name, touched_name
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, Screen, Step, is_same_text
from vlm_agent.errors import UserError
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.templates import PLAIN, ChatTemplate


@dataclass(frozen=True)
class TrajectorySentences:
    """Builds the sentences of one model from its tokenizer, action language, image sizes and chat template.

    `grey` replaces every screen by a grey one (a control).

    An action is writable if the tokenizer decodes its tokens to the same text, up to Unicode normalisation (NFC, which
    Qwen's tokenizers apply). The model could not write any other action: it stays in the history as the tokenizer
    writes it, and is not supervised.
    """

    tokenizer: PreTrainedTokenizerBase
    language: ActionLanguage
    screens: ScreenRule
    template: ChatTemplate = PLAIN
    grey: bool = False

    def build(
        self,
        episode: Episode,
        first: int = 0,
        last: int | None = None,
        first_supervised_step: int = 0,
        with_swipe_targets: bool = False,
        with_unwritable: bool = False,
    ) -> Sentence:
        """The sentence of steps `first` … `last`-1, without the earlier steps, as for an agent without history.

        Actions before `first_supervised_step` have no loss, nor have those that are not writable. `with_unwritable`:
        for decoding, where labels mark every action that has to be answered. `with_swipe_targets`: for training with a
        language that names swipe targets. Half of the swipes with a target then name it. The others are written as in a
        history; their gesture is supervised, and their first token, which decides between tap and swipe, is not.
        """
        sentence = Sentence()
        sentence.read(self.goal_ids(episode.goal))
        steps = episode.steps[first:last]
        names_targets = with_swipe_targets and self.language.name_swipe_targets
        targets = swipe_targets(steps) if names_targets else [None] * len(steps)
        for number, (step, target) in enumerate(zip(steps, targets, strict=True), first):
            self.add_screen(sentence, step)
            kind = ACTION_NAMES.index(step.action.name)
            is_supervised = number >= first_supervised_step
            named = is_supervised and target is not None and _names_swipe_target(episode.goal, number)
            text = self.language.encode(step.action, step.screen, target if named else None)
            ids = self._with_end_mark(text)
            if not is_supervised or not (with_unwritable or self.is_writable(text)):
                sentence.read(ids)
            elif named or target is None:
                sentence.learn(ids, kind)
            else:
                sentence.read(ids[:1])  # the first token decides between tap and swipe
                sentence.learn(ids[1:], kind)
        return sentence

    def add_screen(self, sentence: Sentence, step: Step) -> None:
        """Append the screen and the cue before the action."""
        sentence.read(self.before_screen(is_first=not sentence.screens))
        screen = self.screen(step)
        sentence.see(screen, self.screens.tokens(*screen.shape[1:]))
        sentence.read(self.marks(self.template.cue))

    def screen(self, step: Step) -> np.ndarray:
        """uint8 (3, height', width') for the model. Raises ValueError for a step without pixels."""
        if self.grey or step.screenshot is None:
            return self.screens.blank(*step.size)
        return self.screens.prepare(step.screenshot)

    def before_screen(self, is_first: bool) -> list[int]:
        """The tokens between a screen and the goal or the previous action."""
        turn = "" if is_first else self.template.next_turn
        return self.marks(turn + self.template.before_screen)

    def goal_ids(self, goal: str) -> list[int]:
        return self.start_ids() + self.ids(self.goal_text(goal))

    def goal_text(self, goal: str) -> str:
        return self.template.goal.format(goal=goal)

    def start_ids(self) -> list[int]:
        """The first tokens of every sentence: the tokenizer's start mark, if any, and the chat template's `start`."""
        mark = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        return mark + self.marks(self.template.start)

    def action_ids(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> list[int]:
        """The action's tokens and the end mark. Raises UserError if the action is not writable."""
        text = self.language.encode(action, screen, swipe_target)
        if not self.is_writable(text):
            raise UserError(f"the tokenizer decodes {text!r} to {self.text(self.ids(text))!r}")
        return self._with_end_mark(text)

    def _with_end_mark(self, text: str) -> list[int]:
        return [*self.ids(text), self.end_mark]

    def is_writable(self, text: str) -> bool:
        """Whether the tokenizer decodes the tokens of an action's text to the same text, up to NFC."""
        return self._cached_is_writable(text)

    @cached_property
    def end_mark(self) -> int:
        """The token after every action. Raises UserError if the chat template's is not one token of the tokenizer."""
        if not self.template.end:
            return cast(int, self.tokenizer.eos_token_id)
        ids = self.marks(self.template.end)
        if len(ids) != 1:
            raise UserError(
                f"{self.template.end} ends the turns of this kind of model, and is not a token of its tokenizer; "
                "use the tokenizer that was published with the model"
            )
        return ids[0]

    def ids(self, text: str) -> list[int]:
        """Tokens of a segment as plain text, cached because few segments are different."""
        # An end mark in a typed text is text, not the end of an action.
        return list(self._cached_ids(text, True))

    def marks(self, text: str) -> list[int]:
        """Tokens of a text of the chat template, which may contain special tokens."""
        return list(self._cached_ids(text, False)) if text else []

    @cached_property
    def _cached_ids(self) -> Callable[[str, bool], tuple[int, ...]]:
        def tokenise(text: str, plain: bool) -> tuple[int, ...]:
            return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain).input_ids)

        return lru_cache(maxsize=65536)(tokenise)

    @cached_property
    def _cached_is_writable(self) -> Callable[[str], bool]:
        return lru_cache(maxsize=65536)(lambda text: is_same_text(self.text(self.ids(text)), text))

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key not in ("_cached_ids", "_cached_is_writable")}

    def text(self, ids: list[int]) -> str:
        """`ids` decoded, without special tokens."""
        return cast(
            str, self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )  # a list of ids decodes to one text


def unwritable_line(episode_id: str, step: int, action: Action) -> str:
    """A line that names an action that is not writable, for lists."""
    return f"episode {episode_id} step {step}: {action.name}" + (f" {action.text!r}" if action.text else "")


def _names_swipe_target(goal: str, number: int) -> bool:
    """A coin flip for a step, the same whenever the sentence is built."""
    return random.Random(f"{goal} {number}").random() < 0.5  # noqa: S311 (no secret)


def swipe_targets(steps: Sequence[Step]) -> list[str | None]:
    """For each step the name of the element that its swipe should bring into view; None if unknown or not a swipe.

    It is the element that the first action after the run of swipes touches, if that is a tap on a named element that
    the screen of the swipe does not show yet.
    """
    names: list[str | None] = []
    target = None
    for step in reversed(steps):
        if step.action.is_swipe:
            names.append(None if target in map(spoken_name, step.elements) else target)
        else:
            target = touched_name(step.action, step.screen) if step.action.is_tap else None
            names.append(None)
    return names[::-1]
