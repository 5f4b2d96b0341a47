"""Notes of Android in the Zoo in runs: their tokens are counted, and missing ones are found before training."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import tiny
from helpers.data.notes import ROWS, row, weighted, with_texts
from helpers.runs import chain_runs

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED, ROLES
from vlm_agent.sentences.notes import shuffled_results
from vlm_agent.training.data.recipe_sentences import whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule

LONG = tiny.ACTIONS[::-1] + tiny.ACTIONS
EPISODES = [with_texts(one) for one in (tiny.episode(0), tiny.episode(1, LONG), tiny.episode(2, LONG[:1]))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("thoughts")


@pytest.fixture(scope="module")
def shards(folder) -> Path:
    return tiny.write_shards(folder / "shards", EPISODES)


@pytest.fixture(scope="module")
def features(folder, shards) -> Path:
    return chain_runs.write_features(shards, folder / "features")


def trajectories(shards: Path, training: dict | None = None, **data) -> ShardDataModule:
    content = tiny.recipe(shards, shards / "run")
    content["data"] |= data
    content["training"] |= {"steps": None, "epochs": 1} | (training or {})
    return ShardDataModule(Recipe(**content))


def chains(shards: Path, features: Path, **data) -> ShardDataModule:
    content = chain_runs.recipe(shards, features, shards / "run", **data)
    content["training"] |= {"steps": None, "epochs": 1}
    return ShardDataModule(Recipe(**content))


def sentences_of(plan: ShardDataModule) -> dict:
    stream = plan.stream()
    found = [sentence for number in range(plan.order.rows_in(1)) for sentence in stream.sentences(number)]
    return {sentence.about: sentence for sentence in found}


def text_of(plan: ShardDataModule, sentence) -> str:
    return plan.tokenizer.decode([id_ for id_ in sentence.input_ids if id_ >= 0])


@pytest.mark.parametrize("number", ROWS)
def test_counted_tokens_are_those_of_the_sentences_in_every_row_of_table_5(shards, number):
    plan, dataset = trajectories(shards, notes=row(number)), ShardDataset(shards)
    items = plan.kind.counts.items
    built = [plan.sentences.build(episode) for episode in dataset]
    assert items["tokens"].tolist() == [len(one) for one in built]
    assert items["supervised"].sum() == sum(one.supervised for one in built)
    assert (
        sum(one.supervised for one in sentences_of(plan).values())
        == plan.kind.count_pass(plan.order.items).load.supervised
    )
    sentences = plan.sentences
    assert whole_lengths(dataset, sentences).tolist() == items["tokens"].tolist()


@pytest.mark.parametrize(
    ("control", "budget"),
    [(None, None), (None, 110), ("shuffled_results", None), ("shuffled_results", 110), ("no_history", None)],
)
def test_windows_and_controls_have_the_counted_length_and_read_the_result_before_them(shards, control, budget):
    plan = trajectories(shards, notes=row(10), control=control, max_tokens=budget)
    items = {(item.episode, item.window.first_supervised): item for item in plan.order.items}
    built = sentences_of(plan)
    assert len(built) == len(items)
    assert (len(items) > len(EPISODES)) == bool(budget or control == "no_history")
    for index, first in items:
        window, episode = items[index, first].window, EPISODES[index]
        sentence = built[f"{episode.id} steps {first}-{window.last - 1}"]
        assert len(sentence) == window.tokens
        results = [step.notes["result"] for step in episode.steps]
        read = {None: results, "no_history": [""] * 20, "shuffled_results": shuffled_results(results, episode.goal)}
        for number in range(window.first, window.last):
            result = read[control][number - 1] if number else ""
            line = f"Result: {result}\nScreen: screen-{number}\n" if result else f"Screen: screen-{number}\n"
            assert line in text_of(plan, sentence)
            assert bool(result) or f"\nResult: {results[number - 1]}\nScreen: screen-{number}" not in text_of(
                plan, sentence
            )


@pytest.mark.parametrize("number", ROWS)
@pytest.mark.parametrize("limits", [(512, 128), (45, 30), (18, 128)])
def test_counted_sources_and_targets_are_those_of_the_sentences(shards, features, number, limits):
    plan = chains(shards, features, notes=row(number), max_source_tokens=limits[0], max_target_tokens=limits[1])
    sentences, dataset = plan.kind.sentences, plan.shards
    counts = plan.kind.counts.steps
    steps = [(episode, place) for episode in dataset for place in range(len(episode))]
    sources = [sentences.source_of(episode, place) for episode, place in steps]
    assert counts["source"].tolist() == [sentences.length(source.segments) for source in sources]
    assert counts["dropped"].tolist() == [source.dropped for source in sources]
    assert counts["cut"].tolist() == [source.cut for source in sources]
    targets = [sentences.target(episode.steps[place:]) for episode, place in steps]
    assert counts["target"].tolist() == list(map(sentences.length, targets))
    learned = [sentences.unlearnable(episode.steps[place:]) is None for episode, place in steps]
    assert counts["is_learned"].tolist() == learned
    for source in sources:
        assert "Goal: open settings" in sentences.text(sentences.encode(source.segments, ()).input_ids)


@pytest.mark.parametrize("control", [None, "no_history", "shuffled_results"])
def test_chains_read_the_results_of_their_control_and_have_the_counted_length(shards, features, control):
    plan = chains(shards, features, notes=row(10), control=control)
    lengths = plan.kind.counts.steps["source"] + plan.kind.counts.steps["target"]
    built = sentences_of(plan)
    assert sorted(len(one) for one in built.values()) == sorted(lengths.tolist())
    results = [step.notes["result"] for step in EPISODES[1].steps]
    text = text_of(plan, built["1 step 5"])
    expected = {
        None: "result-4",
        "no_history": None,
        "shuffled_results": shuffled_results(results, EPISODES[1].goal)[4],
    }
    result = expected[control]
    assert ("Action Result:" in text) == (result is not None)
    assert result is None or f"Action Result: {result} " in text
    assert "result-5" not in text and "screen-6" not in text
    roles = {
        ROLES[of] for of, label in zip(built["1 step 5"].roles, built["1 step 5"].labels, strict=True) if label >= 0
    }
    assert roles == {"thought", "plan", "action"}


def test_dry_runs_and_notes_count_texts(shards, features):
    plan = chains(shards, features, notes=row(4), max_source_tokens=18)
    (note,) = plan.notes
    assert "lose the end of their texts (screen description, result)" in note.text
    assert note.figures["description_tokens_lost"] == int(plan.kind.counts.steps["cut"].sum()) > 0
    with_thoughts, without = (chains(shards, features, notes=row(number)) for number in (7, 1))
    assert (
        with_thoughts.kind.count_pass(with_thoughts.order.items).target_tokens[0]
        > without.kind.count_pass(without.order.items).target_tokens[0] + 5
    )


def test_a_note_counts_thoughts_that_an_agent_cannot_write_whole(shards):
    counts = trajectories(shards, notes=row(7)).kind.counts.steps["notes"]
    assert trajectories(shards, notes=row(7)).notes == []
    (note,) = trajectories(shards, notes=row(7), max_note_tokens=int(counts.max()) - 1).notes
    count = int((counts == counts.max()).sum())
    assert note.figures == {"count": count, "steps": 16, "max_tokens": counts.max()}


def test_the_phrases_of_thoughts_are_tokens_only_of_runs_with_thoughts(shards, features):
    tokens = [chains(shards, features, notes=row(number)).tokenizer.get_vocab() for number in (1, 7)]
    assert sum("ActionĠThink:" in one for one in tokens) == 1
    assert "ActionĠThink:" in tokens[1]


def without(episode, number: int, part: str):
    steps = list(episode.steps)
    steps[number] = replace(steps[number], notes={**steps[number].notes, part: " \n"})
    return replace(episode, steps=tuple(steps))


@pytest.mark.parametrize("part", ["screen", "result", "think", "action"])
def test_a_missing_text_is_an_error_before_training_that_names_episode_and_step(tmp_path, part):
    shards = tiny.write_shards(tmp_path / "shards", [EPISODES[0], without(EPISODES[1], 3, part)])
    with pytest.raises(
        RecipeError,
        match=rf"episode 1 step 3 has no note .{part}., which data.notes.{part}: {row(10)[part]} needs \(1 of 15 steps",
    ):
        trajectories(shards, notes={part: row(10)[part]}).order  # noqa: B018 (computed)
    others = {name: use for name, use in row(10).items() if name != part}
    assert trajectories(shards, notes=others).order.items
    plan = trajectories(shards, notes={part: row(10)[part]}, missing_notes="empty")
    assert sorted(map(len, sentences_of(plan).values())) == sorted(item.window.tokens for item in plan.order.items)


def test_episodes_without_any_text_are_refused_and_are_empty_where_asked(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1)])
    with pytest.raises(RecipeError, match="episode 0 step 0 has no note 'result'"):
        trajectories(shards, notes=row(10)).order  # noqa: B018 (computed)
    plan = trajectories(shards, notes=row(10), missing_notes="empty")
    text = text_of(plan, sentences_of(plan)["0 steps 0-4"])
    assert "Screen:" not in text and "Result:" not in text
    assert "\nAction: \n\ntap" in text


def test_the_result_of_the_last_action_is_not_needed(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [without(EPISODES[0], len(EPISODES[0]) - 1, "result")])
    assert trajectories(shards, notes=row(3)).order.items


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"sentences": "elements", "notes": {"think": "learned"}},
            "notes.think needs sentences: trajectory or chain_of_actions",
        ),
        ({"control": "shuffled_results"}, "shuffled_results needs notes.result"),
        ({"notes": {"thought": "learned"}}, "thought"),
        ({"notes": {"think": {"use": "learned", "weight": -1}}}, "weight"),
        ({"notes": {"think": "learned"}, "missing_notes": "guess"}, "missing"),
    ],
)
def test_wrong_settings_are_refused(shards, data, message):
    with pytest.raises(ValueError, match=message):
        trajectories(shards, **data)


def test_a_thought_weight_of_zero_leaves_the_loss_of_the_actions(shards):
    plan = trajectories(shards, notes=weighted(row(7), 0))
    columns = plan.stream()[0]
    weights, roles = columns["loss_weights"][0], columns["roles"][0]
    assert set(weights[roles == ROLES.index("thought")].tolist()) == {0}
    supervised = columns["labels"][0] != IGNORED
    assert set(weights[supervised & (roles == ROLES.index("action"))].tolist()) == {1}
