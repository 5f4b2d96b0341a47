"""Whole trajectories, windows of them, or single steps after their past (`sentences/trajectory.py`)."""

import collections
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import RecipeError
from vlm_agent.models.cost import Workload, causal_pairs
from vlm_agent.models.family import context_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import label_elements
from vlm_agent.sentences.notes import training_notes
from vlm_agent.sentences.segments import Segment, supervised_length
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import TooLongError, Window, single_steps, windows
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.lengths import Counter, Counts, Row, counted, tokenizer_digest
from vlm_agent.training.data.sentence_kinds.kind import (
    EMPTY_CELLS_NAMED,
    PassCounts,
    SentenceKind,
    check_notes,
    missing_notes,
    unwritable,
)
from vlm_agent.training.data.stream import Item, Windows

_SENTENCES = ("first", "first_supervised", "last", "tokens", "supervised", "actions")
_STEPS = ("screen", "notes", "is_writable", "elements", "missing")


@dataclass(frozen=True)
class TrajectoryPass(PassCounts):
    """`screen_tokens`: minimum, mean and maximum of a screen. `over_budget`: episodes that are split into `windows`."""

    over_budget: int
    windows: int
    screen_tokens: tuple[int, float, int]

    def rows(self) -> dict[str, str]:
        fewest, mean, most = self.screen_tokens
        return {
            "over the budget": f"{self.over_budget:,} episodes, cut into {self.windows:,} windows"
            if self.over_budget
            else "none",
            "tokens a screen": f"{mean:,.0f}" if fewest == most else f"{mean:,.0f} ({fewest:,} to {most:,})",
        }


def count_trajectories(
    sentences: np.ndarray, steps: np.ndarray, sizes: np.ndarray, is_by_step: bool = False
) -> TrajectoryPass:
    """`sentences`, `steps`: rows of `TrajectoryKind.counts`, sentences in the order of the steps. `sizes`: int64
    (S, 2), (height, width) of each step's screen as the model sees it. `is_by_step`: each step is a sentence, which is
    no split at a budget."""
    begins = np.searchsorted(steps["episode"], sentences["episode"])
    first, last = begins + sentences["first"], begins + sentences["last"]
    changes = np.bincount(first, minlength=len(steps) + 1) - np.bincount(last, minlength=len(steps) + 1)
    times = np.cumsum(changes)[:-1]  # int64 (steps,): the number of sentences that contain each
    parts = np.unique(sentences["episode"], return_counts=True)[1]
    cut = parts[:0] if is_by_step else parts[parts > 1]
    read = steps["screen"][times > 0]
    return TrajectoryPass(
        episodes=len(parts),
        over_budget=len(cut),
        windows=int(cut.sum()),
        sentences=len(sentences),
        longest=int(sentences["tokens"].max()),
        actions=int(sentences["actions"].sum()),
        screen_tokens=(int(read.min()), float(np.average(steps["screen"], weights=times)), int(read.max())),
        load=Workload(
            tokens=int(sentences["tokens"].sum()),
            pairs=causal_pairs(sentences["tokens"]),
            supervised=int(sentences["supervised"].sum()),
            screens=_count_sizes(sizes, times),
        ),
    )


def _count_sizes(sizes: np.ndarray, times: np.ndarray) -> collections.Counter[tuple[int, int]]:
    different, which = np.unique(sizes, axis=0, return_inverse=True)
    counts = np.bincount(which.ravel(), times).astype(np.int64)
    return collections.Counter(
        {tuple(size): count for size, count in zip(different.tolist(), counts.tolist(), strict=True) if count}
    )


class TrajectoryKind(SentenceKind):
    """One sentence an episode; several where it is longer than the budget, and one a step with `data.past_screens`."""

    @cached_property
    def counts(self) -> Counts:
        """The sentences and steps of the episodes of the run.

        Sentences have their steps as in `Window`, `tokens`, `supervised` tokens and supervised `actions`. Steps have
        the tokens of the `screen` and of learned `notes`, whether the action `is_writable`, the number of `elements`,
        and the notes that are `missing` (`missing_notes`).
        """
        return self._counted(self.shards, self.episodes)

    def _counted(self, shards: ShardDataset, episodes: Sequence[int]) -> Counts:
        """`episodes`: ascending numbers. Raises RecipeError for notes and elements that the sentences need."""
        counts = counted(shards, episodes, Counter(self._count, _SENTENCES, _STEPS, self._identity))
        check_notes(counts.steps, shards, self.run.recipe.data)
        sentences = self.run.sentences
        has_html = sentences.notes.reads_elements or (sentences.as_html and not sentences.grey)
        if has_html and len(counts.steps) and not counts.steps["elements"].any():
            raise RecipeError(
                "this model reads the elements of screens, and these shards have none; convert a source with "
                "elements, or choose a model with vision without data.notes.html"
            )
        return counts

    @property
    def _identity(self) -> list:
        recipe, own, context = self.run.recipe, self.run.sentences, context_of(self.run.config)
        about = [own.template, own.screens, own.as_html, own.references.digest, self.longest, context]
        settings = [recipe.data.model_dump(mode="json"), recipe.action_language.model_dump(mode="json")]
        return [recipe.data.sentences, repr(about), *settings, tokenizer_digest(own.tokenizer)]

    def _count(self, episode: Episode) -> tuple[list[Row], list[Row]]:
        missing = missing_notes(episode, self.run.recipe.data)
        steps: list[Row] = [
            (*self._measured(step), len(step.elements), lacks)
            for step, lacks in zip(episode.steps, missing, strict=True)
        ]
        if any(missing):
            return [], steps
        write, sentences = cache(partial(self.writer(self.shards).segments, episode)), self.run.sentences
        items: list[Row] = []
        for window in self._cut(episode, write):
            segments = write(window.first, window.first_supervised, window.last)
            supervised = supervised_length(segments, sentences)
            actions = sum(each.role == "action" and each.mark is not None for each in segments)
            items.append((window.first, window.first_supervised, window.last, window.tokens, supervised, actions))
        return items, steps

    def _measured(self, step: Step) -> tuple[int, int, bool]:
        """The tokens of a step's screen and learned notes, and whether its action is writable."""
        sentences, language = self.run.sentences, self.run.sentences.language
        screen = sentences.length([sentences.shown(step)])
        notes = sum(map(sentences.count, sentences.notes.learned(step.notes)))
        return screen, notes, sentences.writes(language.encode(step.action, step.screen))

    def _cut(self, episode: Episode, write: Callable[[int, int, int], list[Segment]]) -> list[Window]:
        """The sentences of an episode. `write`: `Trajectories.segments` of it. Raises RecipeError for one that is too
        long."""

        def length(*bounds: int) -> int:
            return self.run.sentences.length(write(*bounds))

        try:
            if self._is_by_step:
                past = None if self.run.recipe.data.control == "no_history" else self.run.sentences.past
                cut = single_steps(len(episode), length, past, self.longest)
            else:
                cut = windows(len(episode), length, self.longest)
        except TooLongError as error:
            raise RecipeError(
                f"episode {episode.id}: {error}; raise training.batch_tokens (or data.max_tokens), or "
                f"lower the tokens of a screen{self._further_remedy}"
            ) from None
        self._check_context(episode.id, max(window.tokens for window in cut))
        return cut

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a sentence; None without a limit."""
        data, training = self.run.recipe.data, self.run.recipe.training
        return training.batch_tokens if data.max_tokens is None else data.max_tokens

    def sentences_per_row(self, batch_size: int) -> int:
        if not self._is_by_step:
            return batch_size
        # As many single steps as the episodes have, or a row would hold fewer supervised actions.
        return round(batch_size * len(self.counts.steps) / len(self.episodes))

    @property
    def _is_by_step(self) -> bool:
        return self.run.recipe.data.control == "no_history" or self.run.sentences.past is not None

    def notes(self) -> list[Note]:
        data, tokens = self.run.recipe.data, self.counts.steps["notes"]
        notes = unwritable(self.shards, self.counts.steps)
        if (tokens > data.max_note_tokens).any():
            notes.append(_note_on_long(tokens, data.max_note_tokens))
        if data.references is not None:
            notes.append(_note_on_identical_goals(self.run.sentences, self.shards, self.episodes))
        return notes

    def digest(self) -> bytes:
        return self.run.sentences.references.digest

    def record(self, run: Path) -> None:
        self.run.sentences.references.write(run)

    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> Windows:
        counts = self.counts if shards is self.shards else self._counted(shards, sorted(episodes))
        learned = counts.items[counts.items["actions"] > 0]
        if not len(learned):
            raise RecipeError(
                f"the tokenizer can write none of the actions in {shards.directory}; choose another tokenizer or "
                "action_language"
            )
        return Windows.of([learned[name] for name in ("episode", *_SENTENCES[:4])], episodes)

    @property
    def _further_remedy(self) -> str:
        of_past = "" if self.run.sentences.past is None else ", data.past_screens or data.history"
        return of_past + ("" if self.run.recipe.data.references is None else ", or data.references.max_actions")

    def _check_context(self, episode_id: str, tokens: int) -> None:
        context = context_of(self.run.config)
        if context is None or tokens <= context:
            return
        whole, remedy = "", f"cut such episodes into windows by data.max_tokens: {context}"
        if self._is_by_step:  # nothing is cut
            whole, remedy = "a step of ", f"lower the tokens of a screen{self._further_remedy}"
        raise RecipeError(
            f"{whole}episode {episode_id} has {tokens} tokens, and the language model was made for {context}; {remedy}"
        )

    def writer(self, shards: ShardDataset) -> "Trajectories":
        return Trajectories(shards, self.run.sentences, self.run.label_grid(), self.run.recipe.data.control)

    def count_pass(self, items: Sequence[Item]) -> TrajectoryPass:
        """The size of a pass over all sentences with a supervised action."""
        counts, screens = self.counts, self.run.processor.screens
        chosen = counts.items[counts.items["actions"] > 0]
        fitted = [screens.fitted(*size) for number in self.episodes for size in self.shards.screen_sizes[number]]
        return count_trajectories(chosen, counts.steps, np.array(fitted, np.int64), self._is_by_step)


def _note_on_long(tokens: np.ndarray, limit: int) -> Note:
    """`tokens`: int64 (S,), of the notes that an agent writes in at most `limit` tokens."""
    figures = {"count": int((tokens > limit).sum()), "steps": len(tokens), "max_tokens": int(tokens.max())}
    line = (
        f"{figures['count']:,} of {len(tokens):,} steps have notes of more than data.max_note_tokens ({limit}), at "
        f"most {figures['max_tokens']}: an agent cannot write them whole"
    )
    return Note("long_notes", line, figures)


def _note_on_identical_goals(sentences: TrajectorySentences, shards: ShardDataset, episodes: Sequence[int]) -> Note:
    """How many episodes of the run have a reference with their own goal."""
    goals = shards.table(["goal"], episodes)["goal"].to_pylist()
    ids = [shards.ids[number] for number in episodes]
    same = sum(bool(sentences.references.has_goal(goal, one)) for goal, one in zip(goals, ids, strict=True))
    text = (
        f"{same:,} of {len(ids):,} episodes ({100 * same / len(ids):.1f} %) have a reference with an identical goal "
        "(data.references)"
    )
    return Note("references", text, {"episodes": len(ids), "with_an_identical_goal": same})


@dataclass(frozen=True)
class Trajectories:
    """Sentences of episodes or windows of them. `grid`: (rows, columns) of element labels, None without them.
    `control`: `data.control`."""

    shards: ShardDataset
    sentences: TrajectorySentences
    grid: tuple[int, int] | None = None
    control: str | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        episode = self._episode(item)
        window = Window(0, 0, len(episode), 0) if item.window is None else item.window
        first, supervised, last = window.first, window.first_supervised, window.last
        sentence = self.sentences.encode(self.segments(episode, first, supervised, last))
        is_step = self._has_past
        sentence.about = f"{episode.id} step {supervised}" if is_step else f"{episode.id} steps {supervised}-{last - 1}"
        if self.grid:
            shown = episode.steps[first:last]
            sentence.element_labels = [
                label_elements(step, self.grid, self.sentences, EMPTY_CELLS_NAMED, rng) for step in shown
            ]
        return sentence

    def segments(self, episode: Episode, first: int, first_supervised: int, last: int) -> list[Segment]:
        """The sentence of steps `first` … `last`-1 of a whole episode; only these need pixels. Actions from
        step `first_supervised` on are supervised."""
        if self._has_past:
            whole = training_notes(episode, self.sentences.notes, self.control)
            return self.sentences.step_segments(whole, first_supervised, with_swipe_targets=True)
        # Without history, a step is the first of its episode.
        start = first if self.control == "no_history" else 0
        known = replace(episode, steps=episode.steps[start:last])
        known = training_notes(known, self.sentences.notes, self.control)
        return self.sentences.segments(
            known, first - start, first_supervised_step=first_supervised - start, with_swipe_targets=True
        )

    @property
    def _has_past(self) -> bool:
        """Whether a step knows of the earlier ones what `data.past_screens` says."""
        return self.sentences.past is not None and self.control != "no_history"

    def _episode(self, item: Item) -> Episode:
        """The whole episode; pixels are read for the window alone, and only for a model that sees them."""
        window = item.window
        if self.sentences.as_html:
            return self.shards.without_pixels(item.episode)
        if window is None:
            return self.shards[item.episode]
        shown = self.shards.steps(item.episode, window.first, window.last)
        if len(shown) == len(self.shards.screen_sizes[item.episode]):
            return shown
        whole = self.shards.without_pixels(item.episode)
        return replace(whole, steps=(*whole.steps[: window.first], *shown.steps, *whole.steps[window.last :]))
