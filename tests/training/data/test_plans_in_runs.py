"""Plans in runs: the counted tokens are those of the sentences, and missing plans are found before training."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import tiny
from helpers.data.notes import FORMS, row, with_plans, with_texts

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED
from vlm_agent.training.data.recipe_sentences import whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule

LONG = tiny.ACTIONS[::-1] + tiny.ACTIONS
EPISODES = [with_plans(with_texts(one)) for one in (tiny.episode(0), tiny.episode(1, LONG), tiny.episode(2, LONG[:1]))]
STEPS = sum(map(len, EPISODES))


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES)


def planned(shards: Path, **data) -> ShardDataModule:
    content = tiny.recipe(shards, shards / "run")
    content["data"] |= data
    content["training"] = {"epochs": 1}
    return ShardDataModule(Recipe(**content))


def sentences_of(plan: ShardDataModule) -> dict:
    stream = plan.stream()
    found = [sentence for number in range(plan.order.rows_in(1)) for sentence in stream.sentences(number)]
    return {sentence.about: sentence for sentence in found}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("past", [{"past_screens": 0}, {"past_screens": 2, "history": 1}, {"past_screens": 50}])
@pytest.mark.parametrize("control", [None, "no_history"])
def test_each_step_has_the_counted_length(shards, form, past, control):
    for notes in ({}, row(9)):
        plan = planned(shards, notes=FORMS[form] | notes, control=control, **past)
        built = sorted((len(one), one.supervised) for one in sentences_of(plan).values())
        items = plan.kind.counts.items
        assert [length for length, _ in built] == sorted(item.window.tokens for item in plan.order.items)
        assert sum(learned for _, learned in built) == items["supervised"].sum()
        assert plan.kind.count_pass(plan.order.items).load.supervised == items["supervised"].sum()
        assert plan.kind.count_pass(plan.order.items).actions == STEPS


@pytest.mark.parametrize("how", ["read", "learned"])
@pytest.mark.parametrize("budget", [None, 110])
def test_steps_are_in_whole_trajectories_and_their_windows(shards, how, budget):
    plan = planned(shards, notes={"step": how}, max_tokens=budget)
    built = sorted(len(one) for one in sentences_of(plan).values())
    assert built == sorted(item.window.tokens for item in plan.order.items)
    assert (len(built) > len(EPISODES)) == (budget is not None)
    sentences, dataset = plan.sentences, ShardDataset(shards)
    assert whole_lengths(dataset, sentences).tolist() == [len(sentences.build(episode)) for episode in EPISODES]


def test_without_history_a_static_plan_is_learned_at_every_step(shards):
    plan = planned(shards, notes=FORMS["static"], past_screens=0, control="no_history")
    sentence = sentences_of(plan)["1 steps 4-4"]
    text = plan.tokenizer.decode([id_ for id_ in sentence.labels if id_ != IGNORED])
    assert text.startswith("plan-4 bbbb; rest-4\n")


@pytest.mark.parametrize(
    ("form", "missing", "message"),
    [
        ("d_pot", 3, "episode 0 step 3 has no note 'plan', which data.notes.plan: learned needs"),
        ("given step", 3, "episode 0 step 3 has no note 'step', which data.notes.step: read needs"),
        ("static", 0, "episode 0 step 0 has no note 'plan', which data.notes.plan: first needs"),
        ("static", 3, None),
    ],
)
def test_missing_texts_are_found_before_training(tmp_path, form, missing, message):
    steps = [replace(step, notes={}) if n == missing else step for n, step in enumerate(EPISODES[0].steps)]
    shards = tiny.write_shards(tmp_path / "shards", [replace(EPISODES[0], steps=tuple(steps))])
    plan = planned(shards, notes=FORMS[form], past_screens=1)
    if message is None:
        assert len(plan.order.items) == len(steps)
        return
    with pytest.raises(RecipeError, match=message):
        plan.order  # noqa: B018
    allowed = planned(shards, notes=FORMS[form], missing_notes="empty", past_screens=1)
    assert sorted(len(one) for one in sentences_of(allowed).values()) == sorted(
        item.window.tokens for item in allowed.order.items
    )


def test_shards_without_plans_lack_every_plan(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0)])
    with pytest.raises(RecipeError, match="episode 0 step 0 has no note 'step'"):
        planned(shards, notes={"step": "learned"}).order  # noqa: B018


def test_plans_that_an_agent_cannot_write_are_counted(shards):
    (note,) = planned(shards, notes=FORMS["d_pot"], max_note_tokens=12, past_screens=0).notes
    assert "steps have notes of more than data.max_note_tokens (12)" in note.text
    assert planned(shards, notes=FORMS["d_pot"], past_screens=0).notes == []
