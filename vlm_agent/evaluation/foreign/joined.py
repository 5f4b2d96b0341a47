"""Predictions of another program, joined with the recorded steps that they answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vlm_agent.action_languages import ActionLanguage, default_language
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import recorded_screen
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.foreign.answers import KIND, Columns, ForeignAnswer, answer, episode_and_step, shown
from vlm_agent.evaluation.foreign.tables import read_table
from vlm_agent.evaluation.predictions import Prediction, predictions_for, write_predictions

_LISTED_EPISODES, _LISTED_STEPS = 3, 5

Answers = dict[str, dict[int, ForeignAnswer]]
Steps = Mapping[str, Sequence[int]]
"""Step numbers by episode id."""


@dataclass(frozen=True)
class ForeignPredictions:
    """What `join` found. `unread`: columns that are not read. `missing`: steps without an answer, which count as wrong,
    and `surplus`: answers to steps that the split does not have. `others`: the number of answers to episodes of the
    split that are not scored. `has_text_alone`: whether actions were decoded from the column text."""

    unread: Sequence[str]
    missing: Steps
    surplus: Steps
    others: int
    has_text_alone: bool

    def failed_steps(self) -> list[str]:
        """A line for each missing step, as those of an agent that did not answer."""
        return [f"episode {name}, step {step}: missing" for name, steps in self.missing.items() for step in steps]

    def lines(self) -> list[str]:
        """For the terminal and the report: what of the file was not scored, or not found."""
        unread = ", ".join(map(shown, self.unread))
        found = {
            f"columns that are not read: {unread}": self.unread,
            f"{self.others:,} answers to episodes of the split that are not scored": self.others,
            f"{in_words(self.missing)} missing, counted as wrong": self.missing,
            f"{in_words(self.surplus)} not in the split, ignored": self.surplus,
        }
        return [line for line, is_found in found.items() if is_found]


def join(
    path: Path,
    dataset: ShardDataset,
    chosen: Sequence[int],
    output: Path,
    language: ActionLanguage | None = None,
    *,
    missing_as_wrong: bool = False,
    ignore_surplus: bool = False,
) -> ForeignPredictions:
    """Writes the predictions in the file `path` for the episodes `chosen` of `dataset` to `output`, as `evaluate` does.

    Without a column action_type, the action is decoded from the column text in `language`, by default that of recipes.
    Text that is not an action, an empty text and an empty action type are wrong answers.

    Raises DatasetError naming file, row and column of the first wrong value, for two rows of one step, and naming the
    first steps that are missing or surplus unless an option accepts them.
    """
    columns, answers = _read(path)
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    in_split = dict(zip(dataset.ids, lengths, strict=True))
    scored = {dataset.ids[index]: lengths[index] for index in chosen}
    surplus = {
        name: steps
        for name, of in answers.items()
        if (steps := [step for step in sorted(of) if not 0 <= step < in_split.get(name, 0)])
    }
    missing = {
        name: steps
        for name, length in scored.items()
        if (steps := [step for step in range(length) if step not in answers.get(name, ())])
    }
    _check(path, dataset, {} if missing_as_wrong else missing, {} if ignore_surplus else surplus, (scored, answers))
    others = sum(len(of) for name, of in answers.items() if name in in_split and name not in scored)
    has_text_alone = KIND not in columns
    found = ForeignPredictions(columns.others, missing, surplus, others, has_text_alone)
    write_predictions(output, _rows(dataset, chosen, answers, language or default_language(), has_text_alone))
    return found


def _read(path: Path) -> tuple[Columns, Answers]:
    columns, rows = read_table(path)
    answers: Answers = {}
    for where, values in rows:
        try:
            episode_id, step = episode_and_step(values)
            found = answer(values, columns, where)
        except (DatasetError, ValueError) as error:  # ValueError: text that is not valid Unicode
            raise DatasetError(f"{path}, {where}: {error}") from None
        of_episode = answers.setdefault(episode_id, {})
        if step in of_episode:
            raise DatasetError(
                f"{path}, {where}: episode {shown(episode_id)}, step {step} is also in {of_episode[step].where}"
            )
        of_episode[step] = found
    if not answers:
        raise DatasetError(f"{path} holds no row")
    return columns, answers


def in_words(steps: Steps) -> str:
    """`3 steps of 2 episodes (episode 'a', steps 0, 4; episode 'b', step 1)`, the first ones."""
    count = sum(map(len, steps.values()))
    listed = [
        f"episode {shown(name)}, {'steps' if len(of) > 1 else 'step'} "
        + ", ".join(map(str, of[:_LISTED_STEPS]))
        + (", …" if len(of) > _LISTED_STEPS else "")
        for name, of in islice(steps.items(), _LISTED_EPISODES)
    ]
    more = "; …" if len(steps) > _LISTED_EPISODES else ""
    return f"{count:,} step(s) of {len(steps):,} episode(s) ({'; '.join(listed)}{more})"


def _check(
    path: Path, dataset: ShardDataset, missing: Steps, surplus: Steps, both: tuple[Mapping[str, int], Answers]
) -> None:
    problems = []
    if missing:
        problems.append(f"{in_words(missing)} missing; --missing-as-wrong counts them as wrong")
    if surplus:
        problems.append(f"{in_words(surplus)} in the file, but not in the split; --ignore-surplus leaves them out")
    if problems:
        raise DatasetError(f"{path}, compared with {dataset.directory}: {'. '.join([*problems, *_hint(*both)])}")


def _hint(scored: Mapping[str, int], answers: Answers) -> list[str]:
    """The commonest causes of steps that do not fit."""
    if not scored.keys() & answers.keys():
        here, there = next(iter(answers)), next(iter(scored))
        return [f"No id agrees: the file has {shown(here)}, the shards have {shown(there)}; is it another split?"]
    if all(set(answers[name]) == set(range(1, scored[name] + 1)) for name in scored.keys() & answers.keys()):
        return ["Steps count from 0, and those of the file from 1"]
    return []


def _rows(
    dataset: ShardDataset, chosen: Sequence[int], answers: Answers, language: ActionLanguage, has_text_alone: bool
) -> Iterator[Prediction]:
    for index in chosen:
        episode = dataset.without_pixels(index)
        of_episode = answers.get(episode.id, {})
        texts, actions, boxes = [], [], []
        for number, step in enumerate(episode.steps):
            found = of_episode.get(number, _MISSING)
            action, box, text = found.action, None, found.text
            if has_text_alone and text is not None:
                screen = recorded_screen(episode, number)
                action, box = language.decode(text, screen), language.predicted_box(text, screen)
            if text is None and action is not None:
                text = language.encode(action, step.screen)
            texts.append(text or "")
            actions.append(action)
            boxes.append(box)
        yield from predictions_for(episode, texts, actions, boxes=boxes)


_MISSING = ForeignAnswer("", None, None)
