"""The references of a run's sentences (`data.references`), from the shards that it learns from."""

from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.agents.examples.nearest import Reference
from vlm_agent.agents.examples.of_run import RunReferences, first_of_goals
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.recipe.data import ReferencesRecipe
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.data_module import Note


def with_references(
    sentences: TrajectorySentences, settings: ReferencesRecipe | None, shards: ShardDataset, episodes: Sequence[int]
) -> TrajectorySentences:
    """`episodes`: numbers of those of the run, in ascending order. Raises EncoderError without the encoder."""
    if settings is None:
        return sentences
    goals = shards.table(["goal"], episodes)["goal"].to_pylist()
    rows = []
    for number, index in enumerate(first_of_goals(goals)):
        episode = shards.without_pixels(episodes[index])
        words = tuple(sentences.in_words(step).rstrip("\n") for step in episode.steps[: settings.max_actions])
        rows.append(Reference(number, episode.id, episode.goal, words))
    return replace(sentences, references=RunReferences.of(rows, settings))


def note_on_identical_goals(sentences: TrajectorySentences, shards: ShardDataset, episodes: Sequence[int]) -> Note:
    """How many episodes of the run have a reference with their own goal."""
    goals = shards.table(["goal"], episodes)["goal"].to_pylist()
    ids = [shards.ids[number] for number in episodes]
    same = sum(bool(sentences.references.has_goal(goal, one)) for goal, one in zip(goals, ids, strict=True))
    text = (
        f"{same:,} of {len(ids):,} episodes ({100 * same / len(ids):.1f} %) have a reference with an identical goal "
        "(data.references)"
    )
    return Note("references", text, {"episodes": len(ids), "with_an_identical_goal": same})
