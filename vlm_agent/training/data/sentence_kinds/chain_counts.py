"""The tokens of sources and targets (`sentences/steps.py`), from columns alone: no screen description is read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.shards.columns import Columns
from vlm_agent.episodes import Screen, Step
from vlm_agent.sentences.steps import DECISION, StepSentences, TooLongError
from vlm_agent.sentences.thoughts import headed
from vlm_agent.training.data.count_cache import CountCache
from vlm_agent.training.data.text_lengths import TextLengths, text_lengths
from vlm_agent.training.data.thoughts import count_texts
from vlm_agent.training.data.token_counts import DifferentActions, action_at

_NO_SCREEN = Screen(None, ())


@dataclass(frozen=True)
class ChainCounts:
    """Token counts of E episodes with S steps in total, end marks included.

    `episodes`: int64 (E,), their numbers in the data set. `lengths`: int64 (E,), steps per episode. `source`: int64
    (S,), tokens of a source without a screen's elements. `dropped`: int64 (S,), its earlier actions that are left out.
    `cut`: int64 (S,), tokens of its texts of CoAT that are left out. `target`: int64 (S,). `is_writable`: bool (S,),
    whether the tokenizer can write the action. `is_learned`: bool (S,), whether it also fits into a target.
    """

    episodes: np.ndarray
    lengths: np.ndarray
    source: np.ndarray
    dropped: np.ndarray
    cut: np.ndarray
    target: np.ndarray
    is_writable: np.ndarray
    is_learned: np.ndarray

    @cached_property
    def episode_of(self) -> np.ndarray:
        """int64 (S,): the number in the data set of each step's episode."""
        return np.repeat(self.episodes, self.lengths)

    @cached_property
    def step_of(self) -> np.ndarray:
        """int64 (S,): the number of each step in its episode."""
        return _step_numbers(self.lengths)


def count_chains(
    columns: Columns,
    sentences: StepSentences,
    episodes: Sequence[int],
    ids: Sequence[str],
    cache: CountCache,
    without_history: bool = False,
) -> ChainCounts:
    """Counts tokens from the columns that `columns_for` reads. `ids`: of `episodes`, the numbers in the data set.

    `without_history`: every step is the first of its episode.

    Raises TooLongError, which names the episode, for a goal that is too long by itself.
    """
    described = replace(sentences, elements=False)
    actions = DifferentActions.of(columns, sentences.language)

    def measure(numbers: Sequence[int]) -> TextLengths:
        return text_lengths(sentences, [" " + actions.text(number) for number in numbers], before=DECISION)

    content = hashlib.sha256(b"steps" + actions.digest()).digest()
    lengths = cache.lengths(sentences, content, len(actions), measure)
    action = lengths.tokens.astype(np.int64)[actions.action_of]
    is_writable = lengths.is_writable[actions.action_of]
    fixed = np.repeat(_goals(columns, described, ids), columns.lengths)
    most = 0 if without_history else sentences.history
    texts, room = count_texts(columns, sentences, headed.segment, cache), sentences.max_source_tokens - fixed
    history, dropped = _histories(action, columns.lengths, most, room - texts.read)
    cut = np.maximum(texts.read - room, 0)
    target = _plans(columns, sentences) + action + 1 + texts.learned
    return ChainCounts(
        episodes=np.array(episodes, np.int64),
        lengths=columns.lengths,
        source=fixed + history + texts.read - cut,
        dropped=dropped,
        cut=cut,
        target=target,
        is_writable=is_writable,
        is_learned=is_writable & (target <= sentences.max_target_tokens),
    )


def _goals(columns: Columns, sentences: StepSentences, ids: Sequence[str]) -> np.ndarray:
    """int64 (E,): tokens of a source without earlier actions."""
    goals = pa.array(columns.goal, pa.string()).dictionary_encode()
    goal_of = goals.indices.to_numpy()
    tokens = np.zeros(len(goals.dictionary), np.int64)
    for number, goal in enumerate(goals.dictionary.to_pylist()):
        try:
            tokens[number] = len(sentences.source(goal, (), _NO_SCREEN).ids)
        except TooLongError as error:
            raise TooLongError(f"episode {ids[int(np.argmax(goal_of == number))]}: {error}") from None
    return tokens[goal_of]


def _histories(
    action: np.ndarray, lengths: np.ndarray, history: int, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64 (S,) twice: the tokens of the earlier actions in a source, and the number of those that are left out.

    `action`: tokens of each action. `room`: the tokens that each source has for earlier actions. The oldest actions are
    left out until the others fit.
    """
    before = np.concatenate([[0], np.cumsum(action)])  # tokens of all actions before each step
    step, number = np.arange(len(action)), _step_numbers(lengths)
    oldest = step - np.minimum(number, history)
    first = np.maximum(oldest, np.searchsorted(before, before[step] - room))
    first = np.minimum(first, step)
    return before[step] - before[first], first - oldest


def _plans(columns: Columns, sentences: StepSentences) -> np.ndarray:
    """int64 (S,): tokens of a target before the action, without texts of CoAT. They depend on the types of the steps
    that follow alone."""
    number, future = _step_numbers(columns.lengths), sentences.future
    left = np.repeat(columns.lengths, columns.lengths) - number
    kinds = np.full((len(number), max(future, 1)), -1, np.int64)
    for ahead in range(future):
        has_step = left > ahead
        kinds[has_step, ahead] = columns.action_kind[np.flatnonzero(has_step) + ahead]
    _, first, plan_of = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    targets = [
        sentences.target([Step(None, action_at(columns, step + ahead)) for ahead in range(count)])
        for step, count in zip(first.tolist(), np.clip(left[first], 1, max(future, 1)).tolist(), strict=True)
    ]
    tokens = [len(target.thought_ids) + len(target.plan_ids) for target in targets]
    return np.array(tokens, np.int64)[plan_of.ravel()]


def _step_numbers(lengths: np.ndarray) -> np.ndarray:
    first = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(first, lengths)
