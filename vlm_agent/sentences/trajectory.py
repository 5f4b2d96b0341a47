"""Whole trajectories as one sentence (Smartphone Assistant, section 3.1.1 and figure 1).

    goal  screen 1  action 1 end  screen 2  action 2 end  …

All actions of the episode are supervised in one forward pass: with causal attention, action t depends only on what an
agent knows at step t. Token ids are built segment by segment with the same tokenizer calls in training and in acting,
so both produce the same ids, and labels are known by construction.

The target of a swipe is the element that it brings into view, derived in hindsight from the next tap. An agent does not
know it in advance, so a target may be supervised but is never part of a history, where a swipe is written without it
(`TrajectorySentences.build`).

With `data.notes`, lines are around the screens and before the actions; with `data.references`, demonstrations follow
the goal (`notes.py`).

With `data.past_screens`, each step is a sentence (`windows.EarlierSteps`):

    goal  earlier steps in words  screen t-N  action t-N end  …  screen t  action t end

Only the last action is supervised. Steps in words are a line each, after a heading.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.names import spoken_name, touched_name
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, Screen, Step
from vlm_agent.errors import UserError
from vlm_agent.sentences import NO_ACTION, Sentence
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.sentences.notes import NO_REFERENCES, NoteLines, ReferenceLines
from vlm_agent.sentences.segments import ASSISTANT, SYSTEM, USER, Segment, ShownScreen, Tokens, encode, length, texts
from vlm_agent.sentences.templates import PLAIN, ChatTemplate
from vlm_agent.sentences.windows import EarlierSteps
from vlm_agent.texts.lines import one_line

WORDS_HEADING = "Done:\n"
"""Before the earlier steps in words."""


@dataclass(frozen=True)
class TrajectorySentences(Tokens):
    """Builds the sentences of one model from its tokenizer, action language, image sizes and chat template.

    `as_html`: a screen is its elements as text (`html.screen_html`) in place of visual tokens. `grey`: every screen is
    replaced by a grey one, and as text by an empty one (the control without vision). `notes`: the lines of
    `data.notes`. `past`: what a step knows of earlier ones; None: everything, in whole trajectories. `references`: the
    demonstrations after the goal.

    An action is writable if its tokens decode to the same text, up to Unicode normalisation (NFC, which Qwen's
    tokenizers apply). The model cannot output an action that is not writable. Such an action stays in the history as
    the tokenizer writes it, and is not supervised.
    """

    language: ActionLanguage
    screens: ScreenRule
    template: ChatTemplate = PLAIN
    grey: bool = False
    notes: NoteLines = NoteLines()  # noqa: RUF009 (frozen)
    as_html: bool = False
    past: EarlierSteps | None = None
    references: ReferenceLines = NO_REFERENCES

    def __post_init__(self) -> None:
        if self.notes.learned_names and "\n" not in self.text(self.ids("a\n") + self.ids("b")):
            raise UserError(
                "this tokenizer cannot write a line feed, which ends a note; choose another tokenizer, or learn "
                "no note in data.notes"
            )

    @property
    def reads_elements(self) -> bool:
        """Whether screens must have elements."""
        return self.as_html or self.notes.reads_elements

    # An episode as segments

    def segments(
        self,
        episode: Episode,
        first: int = 0,
        last: int | None = None,
        first_supervised_step: int = 0,
        with_swipe_targets: bool = False,
        with_unwritable: bool = False,
    ) -> list[Segment]:
        """The goal and steps `first` … `last`-1 (by default to the end), without the earlier steps.

        Actions before `first_supervised_step` and actions that are not writable have no loss, nor have their notes.
        The first step may read the result of the action before it.

        `with_unwritable`: label unwritable actions too, for decoding, where labels mark every action to answer.
        `with_swipe_targets`: for training, if the language names swipe targets. Half of the supervised swipes with a
        target then name it. The others are written as in a history; their first token, which decides between tap and
        swipe, has no loss.
        """
        steps = episode.steps[first:last]
        names_targets = with_swipe_targets and self.language.name_swipe_targets
        targets = swipe_targets(steps) if names_targets else [None] * len(steps)
        found = self.opening(episode)
        for number, target in enumerate(targets, first):
            if number < first_supervised_step:
                found += self._past_step(episode, number, number == first)
            else:
                found += self._step(episode, number, number == first, target, with_unwritable)
        return found

    def step_segments(
        self, episode: Episode, number: int, with_swipe_targets: bool = False, with_unwritable: bool = False
    ) -> list[Segment]:
        """Step `number` after its `past`. Only the steps that it shows need pixels; `with_…` as for `segments`."""
        names_targets = with_swipe_targets and self.language.name_swipe_targets
        target = swipe_targets(episode.steps[number:])[0] if names_targets else None
        before = self._before(episode, number)
        return [*before, *self._step(episode, number, not _shown(before), target, with_unwritable)]

    def prompt_segments(self, episode: Episode) -> list[Segment]:
        """Everything up to the cue of the last step, whose action is not part of it."""
        last = len(episode) - 1
        before = self._before(episode, last)
        return [*before, *self._screen(episode, last, is_first=not _shown(before))]

    def opening(self, episode: Episode) -> list[Segment]:
        """What every sentence of the episode begins with: its start, its goal and its references."""
        return [
            *self.start(),
            Segment(self.goal_text(episode.goal), SYSTEM),
            *texts(self.references.lines(episode.goal, episode.id), SYSTEM),
        ]

    def start(self) -> list[Segment]:
        """The start of every sentence: the tokenizer's start mark, if any, and the chat template's `start`."""
        mark = self.tokenizer.bos_token_id
        return [*([] if mark is None else [Segment(mark=mark)]), Segment(self.template.start, special=True)]

    def _before(self, episode: Episode, number: int) -> list[Segment]:
        """What precedes the screen of step `number` in a prompt."""
        if self.past is None:
            return self.segments(episode, last=number)
        found = [*self.opening(episode), *texts(self.lines_before(episode, number), SYSTEM)]
        first = self.past.first_shown(number)
        for shown in range(first, number):
            found += self._past_step(episode, shown, shown == first)
        return found

    def lines_before(self, episode: Episode, number: int) -> list[str]:
        """What step `number` reads after the goal: notes of the first step, and earlier steps in words. Lines
        with their line feeds; empty without `past`."""
        if self.past is None:
            return []
        first = self.notes.first(episode.steps[0].notes) if number else []
        steps = episode.steps[self.past.first_in_words(number) : self.past.first_shown(number)]
        return [*first, *([WORDS_HEADING] if steps else []), *map(self.in_words, steps)]

    def in_words(self, step: Step) -> str:
        """An earlier step as a line: its note, or else its action as the language writes it without its screen."""
        words = self.notes.in_words(step.notes)
        return f"{one_line(words or self.language.in_words(step.action, step.screen))}\n"

    def _past_step(self, episode: Episode, number: int, is_first: bool) -> list[Segment]:
        """An earlier step without a loss. `is_first`: its screen is the first of the sentence."""
        step = episode.steps[number]
        text = self.language.encode(step.action, step.screen)
        return [
            *self._screen(episode, number, is_first, is_past=True),
            *texts([*self.notes.learned(step.notes, is_past=True), text], ASSISTANT),
            Segment(mark=self.end_mark),
        ]

    def _step(
        self, episode: Episode, number: int, is_first: bool, target: str | None, with_unwritable: bool
    ) -> list[Segment]:
        """A step with a supervised action. `target`: what its swipe should bring into view."""
        step = episode.steps[number]
        # With probability 0.5, seeded by episode and step, so the same in every epoch. No secret depends on it.
        names_target = target is not None and random.Random(f"{episode.id} {number}").random() < 0.5  # noqa: S311
        text = self.language.encode(step.action, step.screen, target if names_target else None)
        notes = self.notes.at(is_first=number == 0)
        screen = self._screen(episode, number, is_first)
        if not (with_unwritable or self.writes(text)):
            return [*screen, *texts([*notes.learned(step.notes), text], ASSISTANT), Segment(mark=self.end_mark)]
        kind = ACTION_NAMES.index(step.action.name)
        # The first token decides between tap and swipe.
        unlearned = 0 if names_target or target is None else 1
        return [
            *screen,
            *notes.supervised(step.notes),
            Segment(text, ASSISTANT, role="action", kind=kind, unlearned=unlearned),
            Segment(mark=self.end_mark, role="action", kind=kind),
        ]

    def _screen(self, episode: Episode, number: int, is_first: bool, is_past: bool = False) -> list[Segment]:
        """A screen, its notes and the cue before the action. `is_past`: of a step that is shown before a later one.

        Raises UserError for a step without a note that is read.
        """
        return [
            *self.before_screen(is_first, self.notes.read(episode, number, is_past)),
            self.shown(episode.steps[number]),
            Segment(self.template.cue, special=True),
        ]

    def before_screen(self, is_first: bool, lines: Sequence[str] = ()) -> list[Segment]:
        """What precedes a screen: after the goal for the first screen, else after the previous action.

        `lines`: texts about the screen, as plain text.
        """
        turn = "" if is_first else self.template.next_turn
        if not lines:
            return [Segment(turn + self.template.before_screen, special=True)]
        before = Segment(self.template.before_screen, special=True)
        return [Segment(turn, special=True), *texts(lines, USER), before]

    def shown(self, step: Step) -> Segment:
        """A screen, as visual tokens or as text; empty text with `grey`."""
        html = ("" if self.grey else screen_html(step.screen)) if self.as_html else None
        return Segment(html, USER, step)

    # Segments as tokens

    def build(
        self,
        episode: Episode,
        first: int = 0,
        last: int | None = None,
        first_supervised_step: int = 0,
        with_swipe_targets: bool = False,
        with_unwritable: bool = False,
    ) -> Sentence:
        """The sentence of `segments`, which describes the arguments."""
        return self.encode(
            self.segments(episode, first, last, first_supervised_step, with_swipe_targets, with_unwritable)
        )

    def build_step(
        self, episode: Episode, number: int, with_swipe_targets: bool = False, with_unwritable: bool = False
    ) -> Sentence:
        """The sentence of `step_segments`, which describes the arguments."""
        return self.encode(self.step_segments(episode, number, with_swipe_targets, with_unwritable))

    def sentences_of(self, episode: Episode, swipe_targets: bool = False, unwritable: bool = True) -> list[Sentence]:
        """All steps of an episode, by default for decoding: one sentence, or with `past` one a step.

        Later steps are without notes of the first step, which the agent writes itself (`lines_before`).
        """
        if self.past is None:
            return [self.build(episode, with_swipe_targets=swipe_targets, with_unwritable=unwritable)]
        later = with_first_notes(episode, dict.fromkeys(self.notes.first_names, ""))
        known = [later if number else episode for number in range(len(episode))]
        return [self.build_step(one, number, swipe_targets, unwritable) for number, one in enumerate(known)]

    def prompt(self, episode: Episode) -> Sentence:
        """The sentence up to the cue of the last step, whose action is not part of it."""
        return self.encode(self.prompt_segments(episode))

    def encode(self, segments: Sequence[Segment]) -> Sentence:
        """The sentence of segments. Raises ValueError for a screen of visual tokens without pixels."""
        return encode(segments, self, self._show)

    def length(self, segments: Sequence[Segment]) -> int:
        """The number of tokens of `encode`, without pixels."""
        return length(segments, self, self.screen_tokens)

    def _show(self, step: Step) -> ShownScreen:
        if self.grey:
            screen = self.screens.blank(*step.size)
        elif step.screenshot is None:
            raise ValueError("a screen without pixels cannot be shown")
        else:
            screen = self.screens.prepare(step.screenshot)
        return screen, self.screens.tokens_of_prepared(*screen.shape[1:])

    def screen_tokens(self, step: Step) -> int:
        """The number of visual tokens of the step's screen."""
        return self.screens.tokens(*step.size)

    # Answers

    def ending(self, text: str) -> str | None:
        """Text that completes `text` to an answer: notes, and an action (`ActionLanguage.ending`)."""
        return self.notes.ending(text, self.language.ending)

    @property
    def max_answer_tokens(self) -> int:
        """The limit of an answer: that of an action, and `data.max_note_tokens` for notes."""
        return self.language.max_tokens + (self.notes.max_tokens if self.notes.learned_names else 0)

    def goal_text(self, goal: str) -> str:
        return self.template.goal.format(goal=goal)

    def action_text(self, action: Action, screen: Screen | None = None) -> str:
        """The action as the language writes it. Raises UserError if it is not writable."""
        text = self.language.encode(action, screen)
        if not self.writes(text):
            raise UserError(f"the tokenizer decodes {text!r} to {self.text(self.ids(text))!r}")
        return text

    def answered(self, text: str, kind: int = NO_ACTION) -> list[Segment]:
        """A supervised answer of one action or text, with the end mark. `kind`: as for `Sentence.learn`."""
        end = Segment(mark=self.end_mark, role="action", kind=kind)
        return [Segment(text, ASSISTANT, role="action", kind=kind), end]

    @cached_property
    def end_mark(self) -> int:
        """The id of the token that ends every action.

        Raises UserError if the chat template's end mark is not a single token of the tokenizer.
        """
        if not self.template.end:
            return cast(int, self.tokenizer.eos_token_id)
        ids = self.ids(self.template.end, special=True)
        if len(ids) != 1:
            raise UserError(
                f"{self.template.end} ends the turns of this kind of model, and is not a token of its tokenizer; "
                "use the tokenizer that was published with the model"
            )
        return ids[0]


def _shown(segments: Sequence[Segment]) -> bool:
    """Whether the segments show a screen."""
    return any(segment.screen is not None for segment in segments)


def with_first_notes(episode: Episode, notes: Mapping[str, str]) -> Episode:
    """The episode with other notes at its first step."""
    if not notes:
        return episode
    first, *others = episode.steps
    return replace(episode, steps=(replace(first, notes={**first.notes, **notes}), *others))


def unwritable_line(episode_id: str, step: int, action: Action) -> str:
    """The line for one unwritable action in lists and messages."""
    return f"episode {episode_id} step {step}: {action.name}" + (f" {action.text!r}" if action.text else "")


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
