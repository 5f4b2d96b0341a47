"""Whole trajectories, windows of them, or single steps after their past (`sentences/trajectory.py`)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.columns import read_columns
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import RecipeError
from vlm_agent.models.family import context_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import label_elements
from vlm_agent.sentences.thoughts import controlled_texts
from vlm_agent.sentences.trajectory import WORDS_HEADING, TrajectorySentences, unwritable_line
from vlm_agent.sentences.windows import PastTokens, TooLongError, Window, single_steps, steps_after_past, windows
from vlm_agent.training.data.count_cache import CountCache, cache_folder
from vlm_agent.training.data.data_module import LISTED, Note, Unwritable
from vlm_agent.training.data.references import note_on_identical_goals
from vlm_agent.training.data.sentence_kinds.kind import EMPTY_CELLS_NAMED, SentenceKind
from vlm_agent.training.data.sentence_kinds.trajectory_pass import TrajectoryPass, count_trajectories, seen_sizes
from vlm_agent.training.data.stream import Item
from vlm_agent.training.data.token_counts import TokenCounts, columns_for, count_tokens


class TrajectoryKind(SentenceKind):
    """One sentence an episode; several where it is longer than the budget, and one a step with `data.past_screens`."""

    @cached_property
    def token_counts(self) -> TokenCounts:
        """The tokens of the episodes of the run."""
        return self._counted(self.shards, self.episodes)

    def _counted(self, shards: ShardDataset, episodes: Sequence[int]) -> TokenCounts:
        """`episodes`: numbers in ascending order."""
        sentences = self.run.sentences
        columns = columns_for(shards, sentences, episodes=episodes, control=self.run.recipe.data.control)
        cache = CountCache(cache_folder(), self.run.recipe.action_language.model_dump(mode="json"))
        return count_tokens(columns, sentences, episodes, cache)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a sentence; None without a limit."""
        data, training = self.run.recipe.data, self.run.recipe.training
        return training.batch_tokens if data.max_tokens is None else data.max_tokens

    def sentences_per_row(self, batch_size: int) -> int:
        if not self._is_by_step:
            return batch_size
        # As many single steps as the episodes have, or a row would hold fewer supervised actions.
        return round(batch_size * float(self.token_counts.lengths.mean()))

    @property
    def _is_by_step(self) -> bool:
        return self.run.recipe.data.control == "no_history" or self.run.sentences.past is not None

    def unwritable(self) -> Unwritable:
        steps = self.token_counts.unwritable_steps()
        return Unwritable(len(steps), tuple(self._unwritable_line(*each) for each in steps[:LISTED]))

    def _unwritable_line(self, episode: int, step: int) -> str:
        return unwritable_line(self.shards.ids[episode], step, self.shards.without_pixels(episode).steps[step].action)

    def notes(self) -> list[Note]:
        data, counts = self.run.recipe.data, self.token_counts
        found = {"thoughts": ("coat", data.coat.max_tokens, counts.thoughts)}
        if counts.plans is not None:
            found["plans"] = ("plan", data.plan.max_tokens, counts.plans)
        notes = [note for name, about in found.items() if (note := _note_on_long(name, *about)) is not None]
        if data.references is not None:
            notes.append(note_on_identical_goals(self.run.sentences, self.shards, self.episodes))
        return notes

    def digest(self) -> bytes:
        return self.run.sentences.references.digest

    def record(self, run: Path) -> None:
        self.run.sentences.references.write(run)

    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> list[Item]:
        counts = self.token_counts if shards is self.shards else self._counted(shards, sorted(episodes))
        found = []
        for episode, row in zip(episodes, counts.rows_of(np.array(episodes)).tolist(), strict=True):
            try:
                cut = self._cut(counts, row)
            except TooLongError as error:
                raise RecipeError(
                    f"episode {shards.ids[episode]}: {error}; raise training.batch_tokens (or data.max_tokens), or "
                    f"lower the tokens of a screen{self._further_remedy}"
                ) from None
            self._check_context(shards.ids[episode], max(window.tokens for window in cut))
            writable = counts.writable_steps_of(row)
            found += [Item(episode, window) for window in cut if writable[window.first_supervised : window.last].any()]
        if not found:
            raise RecipeError(
                f"the tokenizer can write none of the actions in {shards.directory}; choose another tokenizer or "
                "action_language"
            )
        return found

    def _cut(self, counts: TokenCounts, row: int) -> list[Window]:
        """The sentences of an episode. Raises TooLongError."""
        sentences, goal, steps = self.run.sentences, int(counts.goal[row]), counts.steps_of(row).tolist()
        saved = len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
        if self.run.recipe.data.control == "no_history":
            return single_steps(goal, steps, self.longest, saved)
        if sentences.past is None:
            return windows(goal, steps, self.longest, saved)
        shown, words = counts.past_of(row)
        earlier = PastTokens(shown.tolist(), words.tolist(), len(sentences.ids(WORDS_HEADING)))
        return steps_after_past(goal, steps, earlier, sentences.past, self.longest, saved)

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
        sizes = seen_sizes(read_columns(self.shards, self.episodes), self.run.processor.screens)
        return count_trajectories(items, self.token_counts, sizes, self._is_by_step)


def _note_on_long(name: str, section: str, limit: int, tokens: np.ndarray) -> Note | None:
    """`tokens`: int64 (S,), of the texts that an agent writes in at most `limit` tokens."""
    count = int((tokens > limit).sum())
    if not count:
        return None
    figures = {"count": count, "steps": len(tokens), "max_tokens": int(tokens.max())}
    line = (
        f"{count:,} of {len(tokens):,} steps have {name} of more than data.{section}.max_tokens ({limit}), at most "
        f"{figures['max_tokens']}: an agent cannot write them whole"
    )
    return Note(f"long_{name}", line, figures)


@dataclass(frozen=True)
class Trajectories:
    """Sentences of episodes or windows of them. `grid`: (rows, columns) of element labels, None without them.
    `control`: `data.control`."""

    shards: ShardDataset
    sentences: TrajectorySentences
    grid: tuple[int, int] | None = None
    control: str | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        if item.window is not None and self.sentences.past is not None and self.control != "no_history":
            return self._step(item, item.window, rng)
        window, episode = item.window, self._episode(item)
        supervised, first = (0, 0) if window is None else (window.first_supervised - window.first, window.first)
        before = self._steps_before(item, first)
        whole = replace(episode, steps=(*before, *episode.steps))
        whole = controlled_texts(whole, self.sentences.thoughts.parts, self.control)
        sentence = self.sentences.build(
            whole, len(before), first_supervised_step=len(before) + supervised, with_swipe_targets=True
        )
        sentence.about = f"{episode.id} steps {first + supervised}-{first + len(episode) - 1}"
        return self._with_element_labels(sentence, episode.steps, rng)

    def _step(self, item: Item, window: Window, rng: random.Random) -> Sentence:
        """The sentence of a step after its past. `window`: the steps with screens."""
        shown, others = self._episode(item), self.shards.without_pixels(item.episode).steps
        steps = (*others[: window.first], *shown.steps, *others[window.last :])
        whole = controlled_texts(replace(shown, steps=steps), self.sentences.thoughts.parts, self.control)
        sentence = self.sentences.build_step(whole, window.first_supervised, with_swipe_targets=True)
        sentence.about = f"{shown.id} step {window.first_supervised}"
        return self._with_element_labels(sentence, shown.steps, rng)

    def _with_element_labels(self, sentence: Sentence, shown: Sequence[Step], rng: random.Random) -> Sentence:
        if self.grid:
            sentence.element_labels = [
                label_elements(step, self.grid, self.sentences, EMPTY_CELLS_NAMED, rng) for step in shown
            ]
        return sentence

    def _episode(self, item: Item) -> Episode:
        """The item's steps; pixels are read only for a model that sees them."""
        window = item.window
        if self.sentences.as_html:
            episode = self.shards.without_pixels(item.episode)
            return episode if window is None else replace(episode, steps=episode.steps[window.first : window.last])
        return (
            self.shards[item.episode] if window is None else self.shards.steps(item.episode, window.first, window.last)
        )

    def _steps_before(self, item: Item, first: int) -> tuple[Step, ...]:
        """The steps before a window whose results its sentence reads, without pixels."""
        if not self.sentences.thoughts.parts.result or self.control == "no_history":
            return ()
        return self.shards.without_pixels(item.episode).steps[:first]
