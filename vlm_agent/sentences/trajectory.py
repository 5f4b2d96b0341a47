"""Whole trajectories as one sentence (Smartphone Assistant, section 3.1.1 and figure 1).

    goal  screen 1  action 1 end  screen 2  action 2 end  …

All actions of the episode are supervised in one forward pass: with causal attention, action t depends only on what an
agent knows at step t. Token ids are built segment by segment with the same tokenizer calls in training and in acting,
so both produce the same ids, and labels are known by construction.

The target of a swipe is the element that it brings into view, derived in hindsight from the next tap. An agent does not
know it in advance, so a target may be supervised but is never part of a history, where a swipe is written without it
(`TrajectorySentences.build`).

With `data.coat` and `data.plan`, texts are around the screens and before the actions (`thoughts/`); with
`data.references`, demonstrations follow the goal (`references.py`).

With `data.past_screens`, each step is a sentence (`windows.Past`):

    goal  earlier steps in words  screen t-N  action t-N end  …  screen t  action t end

Only the last action is supervised. Steps in words are a line each, after a heading.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.names import spoken_name, touched_name
from vlm_agent.episodes import (
    ACTION_NAMES,
    NO_NOTES,
    Action,
    Episode,
    Screen,
    Step,
    is_same_text,
)
from vlm_agent.errors import UserError
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.references import NO_REFERENCES, ReferenceLines
from vlm_agent.sentences.templates import PLAIN, ChatTemplate
from vlm_agent.sentences.thoughts import LineThoughts, texts_at
from vlm_agent.sentences.thoughts.lines import NO_THOUGHTS
from vlm_agent.sentences.windows import Past
from vlm_agent.texts.lines import one_line

WORDS_HEADING = "Done:\n"
"""Before the earlier steps in words."""


@dataclass(frozen=True)
class TrajectorySentences:
    """Builds the sentences of one model from its tokenizer, action language, image sizes and chat template.

    `as_html`: a screen is its elements as text (`html.screen_html`) in place of visual tokens. `grey`: every screen is
    replaced by a grey one, and as text by an empty one (the control without vision). `thoughts`: the texts of
    `data.coat`.
    `past`: what a step knows of earlier ones; None: everything, in whole trajectories. `references`: the demonstrations
    after the goal.

    An action is writable if its tokens decode to the same text, up to Unicode normalisation (NFC, which Qwen's
    tokenizers apply). The model cannot output an action that is not writable. Such an action stays in the history as
    the tokenizer writes it, and is not supervised.
    """

    tokenizer: PreTrainedTokenizerBase
    language: ActionLanguage
    screens: ScreenRule
    template: ChatTemplate = PLAIN
    grey: bool = False
    thoughts: LineThoughts = NO_THOUGHTS
    as_html: bool = False
    past: Past | None = None
    references: ReferenceLines = NO_REFERENCES

    def __post_init__(self) -> None:
        if self.thoughts.before_action and "\n" not in self.text(self.ids("a\n") + self.ids("b")):
            raise UserError(
                "this tokenizer cannot write a line feed, which ends a thought or a plan; choose another tokenizer, or "
                "set data.coat.think and data.coat.action to false, and data.plan to nothing that is learned"
            )

    def build(
        self,
        episode: Episode,
        first: int = 0,
        last: int | None = None,
        first_supervised_step: int = 0,
        with_swipe_targets: bool = False,
        with_unwritable: bool = False,
    ) -> Sentence:
        """The sentence of the goal and steps `first` … `last`-1 (by default to the end), without the earlier steps.

        Actions before `first_supervised_step` and actions that are not writable have no loss, nor have their thoughts.
        The first step may read the result of the action before it.

        `with_unwritable`: label unwritable actions too, for decoding, where labels mark every action to answer.
        `with_swipe_targets`: for training, if the language names swipe targets. Half of the supervised swipes with a
        target then name it. The others are written as in a history; their first token, which decides between tap and
        swipe, has no loss.
        """
        sentence = Sentence()
        sentence.read(self.opening_ids(episode))
        steps = episode.steps[first:last]
        names_targets = with_swipe_targets and self.language.name_swipe_targets
        targets = swipe_targets(steps) if names_targets else [None] * len(steps)
        for number, target in enumerate(targets, first):
            if number < first_supervised_step:
                self._add_past(sentence, episode, number)
            else:
                self._add_step(sentence, episode, number, target, with_unwritable)
        return sentence

    def build_step(
        self, episode: Episode, number: int, with_swipe_targets: bool = False, with_unwritable: bool = False
    ) -> Sentence:
        """The sentence of step `number` after its `past`. Only the steps that it shows need pixels; `with_…` as for
        `build`."""
        names_targets = with_swipe_targets and self.language.name_swipe_targets
        target = swipe_targets(episode.steps[number:])[0] if names_targets else None
        sentence = self._before(episode, number)
        self._add_step(sentence, episode, number, target, with_unwritable)
        return sentence

    def sentences_of(self, episode: Episode) -> list[Sentence]:
        """All steps of an episode for decoding: one sentence, or with `past` one a step.

        Later steps are without a static plan, which the agent writes itself (`lines_before`).
        """
        if self.past is None:
            return [self.build(episode, with_unwritable=True)]
        later = with_plan_of_first_step(episode, "") if self.thoughts.plans.parts.is_static else episode
        numbers = range(len(episode))
        return [self.build_step(later if number else episode, number, with_unwritable=True) for number in numbers]

    def prompt(self, episode: Episode) -> Sentence:
        """The sentence up to the cue of the last step, whose action is not part of it."""
        last = len(episode) - 1
        sentence = self._before(episode, last)
        self.add_screen(sentence, episode.steps[last], self.texts_at(episode, last))
        return sentence

    def _before(self, episode: Episode, number: int) -> Sentence:
        """What precedes the screen of step `number` in `prompt`."""
        if self.past is None:
            return self.build(episode, last=number)
        sentence = Sentence()
        sentence.read(self.opening_ids(episode))
        sentence.read(self._line_ids(self.lines_before(episode, number)))
        for shown in range(self.past.first_shown(number), number):
            self._add_past(sentence, episode, shown)
        return sentence

    def lines_before(self, episode: Episode, number: int) -> list[str]:
        """What step `number` reads after the goal: a static plan, and earlier steps in words. Lines with their line
        feeds; empty without `past`."""
        if self.past is None:
            return []
        static = self.thoughts.plans.static(episode.steps[0].notes) if number else []
        steps = episode.steps[self.past.first_in_words(number) : self.past.first_shown(number)]
        return [*static, *([WORDS_HEADING] if steps else []), *map(self.in_words, steps)]

    def in_words(self, step: Step) -> str:
        """An earlier step as a line: its immediate step if `data.plan.step` is on, else its action as the language
        writes it without its screen."""
        words = self.thoughts.plans.in_words(step.notes)
        return line_of(words or self.language.in_words(step.action, step.screen))

    def _add_past(self, sentence: Sentence, episode: Episode, number: int) -> None:
        """Append an earlier step without a loss."""
        step = episode.steps[number]
        self.add_screen(sentence, step, self.texts_at(episode, number), is_past=True)
        text = self.language.encode(step.action, step.screen)
        plan_ids = self._line_ids(self.thoughts.plans.learned(step.notes, is_past=True))
        sentence.read(plan_ids + self.thought_ids(step.notes) + self._with_end_mark(text))

    def _add_step(
        self, sentence: Sentence, episode: Episode, number: int, target: str | None, with_unwritable: bool
    ) -> None:
        """Append a step with a supervised action. `target`: what its swipe should bring into view."""
        step = episode.steps[number]
        self.add_screen(sentence, step, self.texts_at(episode, number))
        kind = ACTION_NAMES.index(step.action.name)
        names_target = target is not None and _names_swipe_target(episode.goal, number)
        text = self.language.encode(step.action, step.screen, target if names_target else None)
        plans = self.thoughts.plans.at(is_first=number == 0)
        plan_ids, thought_ids = self._line_ids(plans.learned(step.notes)), self.thought_ids(step.notes)
        ids = self._with_end_mark(text)
        if not (with_unwritable or self.is_writable(text)):
            sentence.read(plan_ids + thought_ids + ids)
            return
        sentence.learn(plan_ids, role="plan", weight=plans.parts.weight)
        sentence.learn(thought_ids, role="thought", weight=self.thoughts.parts.think_weight)
        if names_target or target is None:
            sentence.learn(ids, kind)
        else:
            sentence.read(ids[:1])  # the first token decides between tap and swipe
            sentence.learn(ids[1:], kind)

    def ending(self, text: str) -> str | None:
        """Text that completes `text` to an answer: thoughts, and an action (`ActionLanguage.ending`)."""
        return self.thoughts.ending(text, self.language.ending)

    @property
    def max_answer_tokens(self) -> int:
        """The limit of an answer: that of an action, `data.coat.max_tokens` for thoughts and `data.plan.max_tokens`
        for plans."""
        sections = (self.thoughts.parts, self.thoughts.plans.parts)
        return self.language.max_tokens + sum(parts.max_tokens for parts in sections if parts.learned)

    def add_screen(
        self, sentence: Sentence, step: Step, notes: Mapping[str, str] = NO_NOTES, is_past: bool = False
    ) -> None:
        """Append the screen, its texts and the cue before the action. `is_past`: without the plan of an earlier step.

        Raises UserError for a step without the plan that is read.
        """
        lines = [*self.thoughts.read(notes), *self.thoughts.plans.read(step.notes, is_past)]
        sentence.read(self.before_screen(is_first=not sentence.shown, lines=lines))
        if self.as_html:
            sentence.read_screen(self._tokenise(self.html(step.screen), plain=True))
        else:
            self.see(sentence, step)
        sentence.read(self.marks(self.template.cue))

    def see(self, sentence: Sentence, step: Step) -> None:
        """Append the step's screen as visual tokens. Raises ValueError for a step without pixels."""
        screen = self.screen(step)
        sentence.see(screen, self.screens.tokens_of_prepared(*screen.shape[1:]))

    def html(self, screen: Screen) -> str:
        """The screen as text; empty with `grey`."""
        return "" if self.grey else screen_html(screen)

    def screen(self, step: Step) -> np.ndarray:
        """The step's screen for the model: uint8 (3, height', width'). Raises ValueError for a step without pixels."""
        if self.grey or step.screenshot is None:
            return self.screens.blank(*step.size)
        return self.screens.prepare(step.screenshot)

    def texts_at(self, episode: Episode, number: int) -> Mapping[str, str]:
        """The notes that are read at step `number` of an episode; none if no part is read."""
        return texts_at(episode, number) if self.thoughts.parts.read else NO_NOTES

    def thought_ids(self, notes: Mapping[str, str]) -> list[int]:
        """The tokens before an action; empty if no part is learned."""
        return self._line_ids(self.thoughts.learned(notes))

    def _line_ids(self, lines: Sequence[str]) -> list[int]:
        return [token for line in lines for token in self.ids(line)]

    def before_screen(self, is_first: bool, lines: Sequence[str] = ()) -> list[int]:
        """The tokens before a screen: after the goal for the first screen, else after the previous action.

        `lines`: texts about the screen, as plain text.
        """
        turn = "" if is_first else self.template.next_turn
        if not lines:
            return self.marks(turn + self.template.before_screen)
        texts = [token for line in lines for token in self.ids(line)]
        return self.marks(turn) + texts + self.marks(self.template.before_screen)

    def opening_ids(self, episode: Episode) -> list[int]:
        """The tokens that every sentence of the episode begins with: its goal and its references."""
        return self.goal_ids(episode.goal) + self._line_ids(self.references.lines(episode.goal, episode.id))

    def goal_ids(self, goal: str) -> list[int]:
        """The tokens of the sentence's start and of the goal."""
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
        """The id of the token that ends every action.

        Raises UserError if the chat template's end mark is not a single token of the tokenizer.
        """
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
        """The tokens of a segment as plain text, cached because segments repeat often."""
        # Special tokens are split: an end mark in typed text must not become the end of an action.
        return list(self._cached_ids(text, True))

    def marks(self, text: str) -> list[int]:
        """The tokens of a text of the chat template, which may contain special tokens."""
        return list(self._cached_ids(text, False))

    @cached_property
    def _cached_ids(self) -> Callable[[str, bool], tuple[int, ...]]:
        return lru_cache(maxsize=65536)(lambda text, plain: tuple(self._tokenise(text, plain)))

    def _tokenise(self, text: str, plain: bool) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain).input_ids

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


def with_plan_of_first_step(episode: Episode, plan: str) -> Episode:
    """The episode with another plan at its first step."""
    first, *others = episode.steps
    return replace(episode, steps=(replace(first, notes={**first.notes, "plan": plan}), *others))


def line_of(text: str) -> str:
    """A text on one line, with its line feed."""
    return f"{one_line(text)}\n"


def unwritable_line(episode_id: str, step: int, action: Action) -> str:
    """The line for one unwritable action in lists and messages."""
    return f"episode {episode_id} step {step}: {action.name}" + (f" {action.text!r}" if action.text else "")


def _names_swipe_target(goal: str, number: int) -> bool:
    """Whether a swipe with a target names it: probability 0.5, seeded by goal and step, so the same in every epoch."""
    return random.Random(f"{goal} {number}").random() < 0.5  # noqa: S311 (no secret)


def swipe_targets(steps: Sequence[Step]) -> list[str | None]:
    """For each step the name of the element that its swipe should bring into view; None if unknown or not a swipe.

    The target is the named element that the first action after the consecutive swipes taps. Unknown are targets of
    swipes followed by another kind of action, and targets that the screen of the swipe already shows.
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
