"""Runs with `data.past_screens`: counted tokens, screens and rows are those of the sentences."""

from pathlib import Path

import pytest
from helpers import tiny
from helpers.data.notes import row, with_texts

from vlm_agent.errors import RecipeError
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.shard_data import ShardDataModule

LONG = tiny.ACTIONS[::-1] + tiny.ACTIONS
EPISODES = [with_texts(one) for one in (tiny.episode(0), tiny.episode(1, LONG), tiny.episode(2, LONG[:1]))]
STEPS = sum(map(len, EPISODES))
NAMED = {"name": "named", "name_swipe_targets": True}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES)


def planned(shards: Path, training: dict | None = None, keys: dict | None = None, **data) -> ShardDataModule:
    content = tiny.recipe(shards, shards / "run") | (keys or {})
    content["data"] |= data
    content["training"] = {"epochs": 1} | (training or {})
    return ShardDataModule(Recipe(**content))


def sentences_of(plan: ShardDataModule) -> dict:
    stream = plan.stream()
    found = [sentence for number in range(plan.order.rows_in(1)) for sentence in stream.sentences(number)]
    return {sentence.about: sentence for sentence in found}


@pytest.mark.parametrize("data", [{"past_screens": n} for n in (0, 1, 3, 50)] + [{"past_screens": 1, "history": 2}])
@pytest.mark.parametrize("notes", [{}, row(10)])
@pytest.mark.parametrize("language", [{"bins": tiny.BINS}, NAMED])
def test_each_step_is_a_sentence_of_the_counted_length(shards, data, notes, language):
    plan = planned(shards, notes=notes, keys={"action_language": language}, **data)
    built = sentences_of(plan)
    assert len(built) == len(plan.order.items) == STEPS
    for item in plan.order.items:
        sentence = built[f"{EPISODES[item.episode].id} step {item.window.first_supervised}"]
        exact = language is not NAMED  # a swipe counts as if it named its target
        assert len(sentence) == item.window.tokens if exact else len(sentence) <= item.window.tokens
    load = plan.kind.count_pass(plan.order.items)
    assert (load.actions, load.over_budget) == (STEPS, 0)
    assert load.load.screens.total() == sum(len(one.screens) for one in built.values())
    assert load.load.supervised >= sum(one.supervised for one in built.values())


def test_a_row_has_as_many_supervised_actions_as_with_whole_trajectories(shards):
    rows = {past: planned(shards, {"batch_size": 2}, past_screens=past).row_size.sentences for past in (None, 0)}
    assert rows == {None: 2, 0: round(2 * STEPS / len(EPISODES))}


def test_without_history_a_step_has_no_past(shards):
    plain, past = (planned(shards, control="no_history", past_screens=past) for past in (None, 2))
    ids = [{about: one.input_ids for about, one in sentences_of(plan).items()} for plan in (plain, past)]
    assert ids[0] == ids[1]
    assert planned(shards, control="no_history").row_size == past.row_size


def test_the_control_of_results_reads_the_same_results_with_any_past(shards):
    whole = planned(shards, notes=row(3), control="shuffled_results")
    steps = sentences_of(planned(shards, notes=row(3), control="shuffled_results", past_screens=50))
    for about, sentence in sentences_of(whole).items():
        last = steps[about.replace("steps 0-", "step ")]
        assert last.input_ids == sentence.input_ids


def test_a_step_over_the_budget_is_an_error_that_names_the_keys(shards):
    with pytest.raises(RecipeError, match=r"episode \d: step \d+ takes .* data.past_screens or data.history"):
        planned(shards, past_screens=8, max_tokens=100).order  # noqa: B018


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"past_screens": 50},
            r"^a step of episode \d has \d+ tokens.*100; lower .* data.past_screens or data.history$",
        ),
        ({}, r"^episode \d has \d+ tokens.*100; cut such episodes into windows by data.max_tokens: 100$"),
    ],
)
def test_a_step_longer_than_the_context_is_not_said_to_be_cut_by_data_max_tokens(shards, data, message):
    plan = planned(shards, **data)
    plan.config.get_text_config().max_position_embeddings = 100
    with pytest.raises(RecipeError, match=message):
        plan.order  # noqa: B018
