"""Whole trajectories as one sentence (Smartphone Assistant, section 3.1.1 and figure 1).

    goal  screen 1  action 1 end  screen 2  action 2 end  …

Every action of the episode is learned in one forward pass: causal attention makes action t depend on exactly what an
agent at step t knows. Token ids are built segment by segment with the same tokenizer calls that an agent makes when it
acts, so training and acting cannot differ, and labels are known by construction, never searched for in text.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.screens import grey_screen, prepare_screen

GOAL_TEMPLATE = "Goal: {goal}\n"
ACTION_CUE = "\nAction: "


@dataclass(frozen=True)
class TrajectorySentences:
    """Writes episodes for one model: its tokenizer, action language and screen format.

    `grey` replaces every screen by a grey one (a control).
    Raises ValueError when the tokenizer cannot give an action back as it was written: such a model could not say it.
    """

    tokenizer: PreTrainedTokenizerBase
    language: ActionLanguage
    screen_size: tuple[int, int]
    tokens_per_screen: int
    grey: bool = False

    def build(self, episode: Episode, first: int = 0, last: int | None = None) -> Sentence:
        """The sentence of steps `first` … `last`-1; earlier steps are unknown to it, as to an agent without history."""
        sentence = Sentence()
        sentence.read(self.goal_ids(episode.goal))
        for step in episode.steps[first:last]:
            self.add_screen(sentence, step)
            sentence.learn(self.action_ids(step.action, step))
        return sentence

    def add_screen(self, sentence: Sentence, step: Step) -> None:
        """The screen and the cue after which an action is due."""
        sentence.see(self.screen(step), self.tokens_per_screen)
        sentence.read(self.ids(ACTION_CUE))

    def screen(self, step: Step):
        return grey_screen(self.screen_size) if self.grey else prepare_screen(step.screenshot, self.screen_size)

    def goal_ids(self, goal: str) -> list[int]:
        return self.start_ids() + self.ids(GOAL_TEMPLATE.format(goal=goal))

    def start_ids(self) -> list[int]:
        """What every sentence begins with: the tokenizer's start mark, where it has one."""
        return [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]

    def action_ids(self, action: Action, step: Step | None = None) -> list[int]:
        """The action's tokens and the end mark."""
        text = self.language.render(action, step)
        ids = self.ids(text)
        if self.text(ids) != text:
            raise ValueError(f"the tokenizer gives {text!r} back as {self.text(ids)!r}")
        return [*ids, self.tokenizer.eos_token_id]

    def ids(self, text: str) -> list[int]:
        """Tokens of a segment by itself; the same few segments come again and again, so they are kept."""
        return list(self._cached_ids(text))

    @cached_property
    def _cached_ids(self):
        # split_special_tokens: an end mark that somebody typed is text, not the end of an action.
        return lru_cache(maxsize=65536)(
            lambda text: tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids)
        )

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_cached_ids"}

    def text(self, ids: list[int]) -> str:
        """What the model said: `ids` up to the end mark, decoded."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
