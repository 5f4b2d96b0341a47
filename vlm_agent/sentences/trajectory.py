"""Whole trajectories as one sentence (Smartphone Assistant, section 3.1.1 and figure 1).

    goal  screen 1  action 1 end  screen 2  action 2 end  …

Every action of the episode is learned in one forward pass: causal attention makes action t depend on exactly what an
agent at step t knows. Token ids are built segment by segment with the same tokenizer calls that an agent makes when it
acts, so training and acting cannot differ, and labels are known by construction, never searched for in text.
"""

import random
from dataclasses import dataclass
from functools import cached_property, lru_cache

from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, Step
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.frames import PLAIN, Frame
from vlm_agent.sentences.screens import ScreenRule
from vlm_agent.sentences.sought import sought_names


@dataclass(frozen=True)
class TrajectorySentences:
    """Writes episodes for one model: its tokenizer, action language, way to take screens and form of conversation.

    `grey` replaces every screen by a grey one (a control).
    Raises ValueError when the tokenizer cannot give an action back as it was written: such a model could not say it.
    """

    tokenizer: PreTrainedTokenizerBase
    language: ActionLanguage
    screens: ScreenRule
    frame: Frame = PLAIN
    grey: bool = False

    def build(
        self, episode: Episode, first: int = 0, last: int | None = None, learned: int = 0, told: bool = False
    ) -> Sentence:
        """The sentence of steps `first` … `last`-1; earlier steps are unknown to it, as to an agent without history.

        Actions before step `learned` are read and not learned. With `told`, to train a language whose swipes say what
        they are to bring, half of them do; of the others, written as an agent has them in its history, the gesture is
        learned and the choice of it is not.
        """
        sentence = Sentence()
        sentence.read(self.goal_ids(episode.goal))
        steps = episode.steps[first:last]
        sought = sought_names(steps) if told and self.language.sought else [None] * len(steps)
        for number, (step, name) in enumerate(zip(steps, sought, strict=True), first):
            self.add_screen(sentence, step)
            kind = ACTION_NAMES.index(step.action.name)
            named = number >= learned and name is not None and _falls(episode.goal, number)
            ids = self.action_ids(step.action, step, name if named else None)
            if number < learned:
                sentence.read(ids)
            elif named or name is None:
                sentence.learn(ids, kind)
            else:
                sentence.read(ids[:1])  # with the first token it is chosen
                sentence.learn(ids[1:], kind)
        return sentence

    def add_screen(self, sentence: Sentence, step: Step) -> None:
        """The screen and the cue after which an action is due."""
        sentence.read(self.before_screen(is_first=not sentence.screens))
        screen = self.screen(step)
        sentence.see(screen, self.screens.tokens(*screen.shape[1:]))
        sentence.read(self.marks(self.frame.cue))

    def screen(self, step: Step):
        height, width = step.screenshot.shape[:2]
        return self.screens.blank(height, width) if self.grey else self.screens.prepare(step.screenshot)

    def before_screen(self, is_first: bool) -> list[int]:
        """What stands between the goal, or the action before, and a screen."""
        return self.marks(self.frame.before_screen if is_first else self.frame.next_turn + self.frame.before_screen)

    def goal_ids(self, goal: str) -> list[int]:
        return self.start_ids() + self.ids(self.frame.goal.format(goal=goal))

    def start_ids(self) -> list[int]:
        """What every sentence begins with: the tokenizer's start mark, where it has one, and the frame's."""
        mark = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        return mark + self.marks(self.frame.start)

    def action_ids(self, action: Action, step: Step | None = None, sought: str | None = None) -> list[int]:
        """The action's tokens and the end mark."""
        text = self.language.render(action, step, sought)
        ids = self.ids(text)
        if self.text(ids) != text:
            raise ValueError(f"the tokenizer gives {text!r} back as {self.text(ids)!r}")
        return [*ids, self.tokenizer.eos_token_id]

    def ids(self, text: str) -> list[int]:
        """Tokens of a segment by itself, as plain text; the same few segments come again and again, so they stay."""
        # An end mark that somebody typed is text, not the end of an action.
        return list(self._cached_ids(text, True))

    def marks(self, text: str) -> list[int]:
        """Tokens of a text of the frame, special tokens among them."""
        return list(self._cached_ids(text, False)) if text else []

    @cached_property
    def _cached_ids(self):
        def tokenise(text: str, plain: bool) -> tuple[int, ...]:
            return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain).input_ids)

        return lru_cache(maxsize=65536)(tokenise)

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_cached_ids"}

    def text(self, ids: list[int]) -> str:
        """What the model said: `ids` up to the end mark, decoded."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _falls(goal: str, number: int) -> bool:
    """A coin for a step, the same whenever the sentence is written."""
    return random.Random(f"{goal} {number}").random() < 0.5  # noqa: S311 (no secret)
