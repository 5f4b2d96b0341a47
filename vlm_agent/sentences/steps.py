"""Each step as a source and a target of its own (Auto-UI, sections 3.1 and 3.2), with the spellings of its code.

    source   Previous Actions: ACTION ACTION … Goal: GOAL Screen: ELEMENT ELEMENT …
    target   Action Plan: [TYPE,TYPE,…] ; Action Decision: ACTION

The source has up to `history` earlier actions, the oldest first, and the goal; with `elements` the screen as text
(`html.py`). The target has the types of up to `future` actions from the current one, and the current action. With
`history` or `future` 0, that part and its heading are absent.

Token ids are built segment by segment with the same tokenizer calls in training and in acting. Each segment but the
first begins with a space. T5's tokenizer splits at white space, so its ids are those of the whole text; other
tokenizers may join characters across segments of a whole text, which here never happens.

With `data.notes`, sources and targets have notes too (`notes.HeadedNotes`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.language import DECISION
from vlm_agent.episodes import ACTION_NAMES, ActionKind, Episode, Screen, Step
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import Sentence, html
from vlm_agent.sentences.notes import HeadedNotes, notes_at
from vlm_agent.sentences.segments import ASSISTANT, USER, Segment, Tokens, encode, length, texts
from vlm_agent.sentences.windows import TooLongError

HISTORY, GOAL, SCREEN = "Previous Actions:", "Goal:", "Screen:"
PLAN = "Action Plan:"
_PLAN_OPENING, _PLAN_LINK = f"{PLAN} [", f" ; {DECISION} "
_KINDS = tuple(kind.name for kind in ActionKind)

PHRASES = (HISTORY, GOAL, SCREEN, _PLAN_OPENING, f"]{_PLAN_LINK.rstrip()}", DECISION, *_KINDS, *html.PHRASES)
"""The fixed texts of sources and targets, for a tokenizer trained from scratch beside those of the language."""


@dataclass(frozen=True)
class StepSource:
    """`segments`: what the encoder reads, with the end mark. `dropped`: earlier actions left out, `cut`: tokens left
    out at the end of what follows the goal (notes, elements), because the source would be too long."""

    segments: list[Segment]
    dropped: int = 0
    cut: int = 0


@dataclass(frozen=True)
class StepSentences(Tokens):
    """Builds the source and the target of each step.

    `history`, `future`: numbers of actions, the current one included in `future`. `elements`: whether the source has
    the screen as text. `past_screens`: number of earlier screens whose features the model sees. Limits include end
    marks. `notes`: those of `data.notes`.

    A decision is writable if the tokenizer decodes its tokens to the same text, up to NFC. T5 cannot write `<`, `{`,
    `~`, emoji or CJK, so actions with such text are not learned; in a source they become the unknown token.
    """

    language: ActionLanguage
    history: int = 8
    future: int = 4
    elements: bool = False
    past_screens: int = 0
    max_source_tokens: int = 512
    max_target_tokens: int = 128
    notes: HeadedNotes = HeadedNotes()  # noqa: RUF009 (frozen)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, language: ActionLanguage, data: DataRecipe) -> Self:
        """The sentences of a recipe's `data`. Raises ValueError for that of another kind of sentences."""
        if data.history is None or data.past_screens is None:
            raise ValueError("sentences of single steps need numbers for history and past_screens")
        return cls(
            tokenizer,
            language,
            data.history,
            data.future,
            data.elements,
            data.past_screens,
            data.max_source_tokens,
            data.max_target_tokens,
            HeadedNotes(data.notes),
        )

    def build(self, episode: Episode, number: int, screens: Sequence[np.ndarray]) -> Sentence:
        """The sentence of step `number` (from 0): its source without a loss, then its target.

        `screens`: the features of the steps `screen_numbers(number)`, float16 (tokens, width) each. Raises ValueError
        for a step that `unlearnable` names, and for another number of screens; TooLongError as `source` does.
        """
        if reason := self.unlearnable(episode.steps[number:]):
            raise ValueError(f"episode {episode.id} step {number} cannot be learned: {reason}")
        sentence = self.encode(self.segments(episode, number), screens)
        sentence.about = f"episode {episode.id} step {number}"
        return sentence

    def encode(self, segments: Sequence[Segment], screens: Sequence[np.ndarray]) -> Sentence:
        """The sentence of segments. `screens`: the features of the screens in them. Raises ValueError for another
        number of screens."""
        expected = sum(segment.screen is not None for segment in segments)
        if len(screens) != expected:
            raise ValueError(f"the step has {len(screens)} screens, expected {expected}")
        features = iter(screens)
        return encode(segments, self, lambda step: (next(features), 0))

    def length(self, segments: Sequence[Segment]) -> int:
        """The number of tokens of `encode`. Features of screens are no tokens."""
        return length(segments, self, lambda step: 0)

    def segments(self, episode: Episode, number: int) -> list[Segment]:
        """Step `number`: its prompt, then its target."""
        return [*self.prompt_segments(episode, number), *self.target(episode.steps[number:])]

    def prompt_segments(self, episode: Episode, number: int) -> list[Segment]:
        """Step `number` without its target: its source and its screens. Raises TooLongError as `source` does."""
        return [*self.source_of(episode, number).segments, *self.screens_of(episode, number)]

    def screens_of(self, episode: Episode, number: int) -> list[Segment]:
        """The screens whose features the model sees at step `number`."""
        return [Segment(turn=USER, screen=episode.steps[seen]) for seen in self.screen_numbers(number)]

    def screen_numbers(self, number: int) -> range:
        """The numbers of the steps whose screens the model sees at step `number`, the oldest first."""
        return range(max(0, number - self.past_screens), number + 1)

    def source_of(self, episode: Episode, number: int) -> StepSource:
        """The source of step `number`, with the notes that are known there. Raises TooLongError as `source` does."""
        screen = episode.steps[number].screen
        if names := self.notes.read_names:
            screen = replace(screen, notes=notes_at(episode, number, names))
        return self.source(episode.goal, episode.steps[:number], screen)

    def source(self, goal: str, past: Sequence[Step], screen: Screen) -> StepSource:
        """The source of a step after the steps `past`.

        One that is too long loses its oldest actions, then the end of what follows the goal, but never the goal.
        Raises TooLongError if the goal with its headings is too long by itself.
        """
        head, actions, goal_text, description = self._texts(goal, past, screen)
        opening, goal_segment = [*head, goal_text], Segment(f" {goal_text}" if head else goal_text, USER)
        needed = sum(self.count(" " + text if at else text) for at, text in enumerate(opening)) + 1
        room = self.max_source_tokens - needed
        if room < 0:
            raise TooLongError(
                f"the goal {goal[:60]!r} takes {needed} tokens with its headings, more than "
                f"data.max_source_tokens ({self.max_source_tokens}); raise it to at least that number"
            )
        counts = [self.count(" " + text) for text in actions]
        after = [self.count(" " + text) for text in description]
        dropped, tokens = 0, sum(counts) + sum(after)
        while dropped < len(counts) and tokens > room:
            tokens -= counts[dropped]
            dropped += 1
        cut = max(0, tokens - room)
        segments = [
            *texts(head, USER),
            *texts((f" {text}" for text in actions[dropped:]), USER),
            goal_segment,
            *_kept([Segment(f" {text}", USER) for text in description], after, sum(after) - cut),
            Segment(mark=self.end_mark),
        ]
        return StepSource(segments, dropped, cut)

    def target(self, steps: Sequence[Step]) -> list[Segment]:
        """The target of the first of `steps`, with the end mark; the others are those that follow it."""
        kind = ACTION_NAMES.index(steps[0].action.name)
        return [*self._target_texts(steps), Segment(mark=self.end_mark, role="action", kind=kind)]

    def _target_texts(self, steps: Sequence[Step]) -> list[Segment]:
        notes, plan = self.notes.supervised(steps[0].notes), self._plan(steps)
        kind = ACTION_NAMES.index(steps[0].action.name)
        return [
            *notes,
            Segment(f" {plan}" if notes else plan, ASSISTANT, role="plan"),
            Segment(f" {self._decision(steps[0])}", ASSISTANT, role="action", kind=kind),
        ]

    def is_writable(self, step: Step) -> bool:
        """Whether the tokenizer decodes the tokens of the step's decision to the same text, up to NFC."""
        return self.writes(f" {self._decision(step)}", before=DECISION)

    def unlearnable(self, steps: Sequence[Step]) -> str | None:
        """Why the first of `steps` cannot be learned; None if it can."""
        if not self.is_writable(steps[0]):
            return "the tokenizer cannot write its text"
        tokens = self.length(self.target(steps))
        if tokens > self.max_target_tokens:
            return f"its target has {tokens} tokens, more than data.max_target_tokens ({self.max_target_tokens})"
        return None

    def plan_of(self, text: str) -> tuple[str, ...]:
        """The action types of the plan in an answer, as they are in it; empty without a plan."""
        plan, _, _ = text.partition(DECISION)
        _, opening, entries = plan.partition(_PLAN_OPENING)
        entries, closing, _ = entries.partition("]")
        return tuple(entry for part in entries.split(",") if (entry := part.strip())) if opening and closing else ()

    def decision_of(self, text: str) -> str:
        """The text of the action in an answer: what follows its first heading, or all of it without one."""
        _, heading, decision = text.partition(DECISION)
        return decision.strip(" ") if heading else text

    def ending(self, text: str) -> str | None:
        """Text that completes `text` to a target, as `ActionLanguage.ending` does for an action. Any note is
        allowed."""
        if not self.notes.learned_names:
            return self._ending(text)
        rest = self.notes.split(text)[1]
        if rest:
            return self._ending(rest)
        ending = self._ending("")
        if ending is None:
            return None
        whole = f"{self.notes.LINK} {ending}"
        written = next(count for count in range(len(whole), -1, -1) if text.endswith(whole[:count]))
        return whole[written:]

    def _ending(self, text: str) -> str | None:
        if not self.future:
            return self._link_ending(text, f"{DECISION} ")
        if _PLAN_OPENING.startswith(text):
            return self._plan_ending(text, "", _PLAN_OPENING[len(text) :])
        return self._plan_ending(text, text[len(_PLAN_OPENING) :], "") if text.startswith(_PLAN_OPENING) else None

    @property
    def end_mark(self) -> int:
        """The id of the token that ends sources and targets."""
        return cast(int, self.tokenizer.eos_token_id)

    def _texts(self, goal: str, past: Sequence[Step], screen: Screen) -> tuple[list[str], list[str], str, list[str]]:
        """The texts of the heading of the history, its actions, the goal, and what follows it."""
        recent = past[-self.history :] if self.history else ()
        actions = [self.language.encode(step.action, step.screen) for step in recent]
        elements = [SCREEN, *html.element_texts(screen.elements or ())] if self.elements else []
        after_goal = [*self.notes.read(screen.notes), *elements]
        return [HISTORY] if self.history else [], actions, html.one_line(f"{GOAL} {goal}"), after_goal

    def _plan(self, steps: Sequence[Step]) -> str:
        kinds = ",".join(step.action.kind.name for step in steps[: self.future])
        return f"{_PLAN_OPENING}{kinds}]{_PLAN_LINK.rstrip()}" if self.future else DECISION

    def _decision(self, step: Step) -> str:
        return self.language.encode(step.action, step.screen)

    def _plan_ending(self, text: str, entries: str, before: str) -> str | None:
        """`before` and a completion of `text`, whose plan so far is `entries`."""
        entries, closing, after = entries.partition("]")
        *complete, last = entries.split(",")
        names = [kind for kind in _KINDS if kind.startswith(last) and (kind == last or not closing)]
        if not names or len(complete) >= self.future or not set(complete) <= set(_KINDS):
            return None
        ending = self._link_ending(after, _PLAN_LINK)
        if closing or ending is None:
            return ending
        return before + min(names, key=len)[len(last) :] + "]" + ending

    def _link_ending(self, text: str, link: str) -> str | None:
        if link.startswith(text):
            decision = self.language.ending("")
            return None if decision is None else link[len(text) :] + decision
        return self.language.ending(text[len(link) :]) if text.startswith(link) else None


def _kept(segments: Sequence[Segment], counts: Sequence[int], room: int) -> list[Segment]:
    """The first segments that fit into `room` tokens, the last of them cut. `counts`: tokens of each."""
    found: list[Segment] = []
    for segment, count in zip(segments, counts, strict=True):
        if room <= 0:
            break
        found.append(segment if count <= room else replace(segment, kept=room))
        room -= count
    return found
