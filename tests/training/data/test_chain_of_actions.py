"""`data.sentences: chain_of_actions`: an item a step, with stored features, and limits known before training."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny
from helpers.runs import chain_runs
from tokenizers import normalizers

from vlm_agent.cli import OK, main
from vlm_agent.errors import CheckpointError, DatasetError, RecipeError
from vlm_agent.models import features as features_package
from vlm_agent.models.build import build_tokenizer
from vlm_agent.models.cost import NO_WORK
from vlm_agent.models.features import load_extractor
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.recipe.model import FeatureSettings
from vlm_agent.recipe.run import Recipe, ValidationRecipe
from vlm_agent.sentences import ROLES
from vlm_agent.training.data import data_module
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.data.stream import RowSize
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.report import Target, dry_run, run_rows

EPISODES = chain_runs.episodes()
STEPS = [(episode.id, number) for episode in EPISODES for number in range(len(episode))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def shards(folder) -> Path:
    return tiny.write_shards(folder / "shards", EPISODES)


@pytest.fixture(scope="module")
def features(folder, shards) -> Path:
    return chain_runs.write_features(shards, folder / "features")


@pytest.fixture
def planned(shards, features, tmp_path):
    """The data module of a recipe with these keys of `data`."""

    def plan(training: dict | None = None, **data) -> ShardDataModule:
        content = chain_runs.recipe(shards, features, tmp_path / "run")
        content["data"] |= data
        content["training"] |= {"steps": None, "epochs": 1, "batch_size": 4} | (training or {})
        return ShardDataModule(Recipe(**content))

    return plan


def sentences_of(plan: ShardDataModule) -> dict:
    """The sentences of a pass, by what they are about."""
    stream = plan.stream()
    found = [sentence for row in range(plan.order.rows_in(1)) for sentence in stream.sentences(row)]
    return {sentence.about: sentence for sentence in found}


def test_every_step_is_a_sentence_with_the_features_of_its_screen(planned, shards, features):
    plan = planned(future=2)
    found = sentences_of(plan)
    assert sorted(found) == sorted(f"{episode} step {number}" for episode, number in STEPS)
    stored = load_extractor(FeatureSettings(extractor=chain_runs.EXTRACTOR))
    for about, sentence in found.items():
        episode, number = about.split(" step ")
        step = EPISODES[int(episode)].steps[int(number)]
        (screen,) = sentence.screens
        assert np.array_equal(screen, stored.extract([step.screenshot])[0])
        learned = [id_ for id_, label in zip(sentence.input_ids, sentence.labels, strict=True) if label == id_]
        assert f"[{','.join(kinds(int(episode), int(number), 2))}]" in plan.kind.sentences.text(learned)
    assert np.array_equal(found["2 step 3"].screens[0], plan.kind.features.steps(plan.shards, 2)[3])


def kinds(episode: int, number: int, future: int) -> list[str]:
    return [step.action.kind.name for step in EPISODES[episode].steps[number : number + future]]


def test_a_batch_has_padded_sources_targets_and_features(planned):
    plan = planned()
    row = plan.stream()[0]
    assert row["features"].shape == (4, 1, 192)
    assert row["input_ids"].shape == row["attention_mask"].shape
    assert row["shift_labels"].shape == row["kinds"].shape == row["roles"].shape
    assert row["source_lengths"] == row["attention_mask"].sum(1).tolist()
    labels = row["shift_labels"]
    assert row["target_lengths"] == (labels >= 0).sum(1).tolist()
    plans = (row["roles"] == ROLES.index("plan")).sum(1)
    assert all(0 < count < length for count, length in zip(plans.tolist(), row["target_lengths"], strict=True))
    assert {*row} >= {*NOT_FOR_MODELS} & {"about", "kinds", "roles"}


def test_the_writer_pickles_and_writes_the_same(planned):
    plan = planned()
    stream = plan.stream()
    (first, *_), (again, *_) = stream.sentences(0), pickle.loads(pickle.dumps(stream)).sentences(0)  # noqa: S301
    assert (first.input_ids, first.labels, first.about) == (again.input_ids, again.labels, again.about)
    assert np.array_equal(first.screens[0], again.screens[0])


@pytest.mark.parametrize("history", [0, 1, 8])
@pytest.mark.parametrize("future", [0, 1, 4])
@pytest.mark.parametrize("limits", [(512, 128), (24, 40), (20, 15)])
def test_counts_equal_the_sentences(planned, history, future, limits):
    plan = planned(history=history, future=future, max_source_tokens=limits[0], max_target_tokens=limits[1])
    sentences, dataset, counts = plan.kind.sentences, plan.shards, plan.kind.counts.steps
    steps = [(episode, number) for episode in dataset for number in range(len(episode))]
    sources = [sentences.source(one.goal, one.steps[:number], one.steps[number].screen) for one, number in steps]
    assert counts["source"].tolist() == [len(sentences.encode(source.segments, ())) for source in sources]
    assert counts["dropped"].tolist() == [source.dropped for source in sources]
    targets = [sentences.target(one.steps[number:]) for one, number in steps]
    assert counts["target"].tolist() == [len(sentences.encode(target, ())) for target in targets]
    learned = [sentences.unlearnable(one.steps[number:]) is None for one, number in steps]
    assert counts["is_learned"].tolist() == learned
    assert counts["number"].tolist() == [number for _, number in steps]
    assert [dataset.ids[index] for index in counts["episode"]] == [one.id for one, _ in steps]
    assert counts["dropped"].any() == (history == 8 and limits[0] < 512)


def test_truncated_sources_are_counted_exactly_with_and_without_descriptions(planned):
    (note,) = planned(max_source_tokens=24).notes
    assert note.figures["sources"] == len(STEPS)
    assert 0 < note.figures["lose_actions"] < len(STEPS)
    assert note.figures["lose_description"] == 0
    assert f"of {len(STEPS)}, {note.figures['lose_actions']} (" in note.text
    (note,) = planned(max_source_tokens=60, elements=True).notes
    assert note.figures["sources"] == len(STEPS)
    assert note.figures["lose_description"] > 0


def test_data_without_elements_are_refused_where_the_sources_describe_them(tmp_path):
    bare = [replace(one, steps=tuple(replace(step, elements=()) for step in one.steps)) for one in EPISODES[:2]]
    shards = tiny.write_shards(tmp_path / "shards", bare)
    features = chain_runs.write_features(shards, tmp_path / "features")
    content = chain_runs.recipe(shards, features, tmp_path / "run", elements=True)
    with pytest.raises(RecipeError, match=rf"data.elements is true, and none of 6 steps .* {shards} has elements"):
        _ = ShardDataModule(Recipe(**content)).notes


def test_targets_that_are_too_long_are_listed_and_not_learned(planned):
    plan = planned(max_target_tokens=18)
    *_, note = plan.notes
    assert note.name == "long_targets"
    assert note.figures["count"] + len(plan.order.items) == len(STEPS)
    assert "exceeds data.max_target_tokens (18)" in note.text
    assert note.figures["first"][0].startswith("episode 2 step 2: type ")


def test_actions_that_the_tokenizer_cannot_write_are_listed_and_the_run_goes_on(planned, monkeypatch, tmp_path):
    def changed(*arguments):
        tokenizer = build_tokenizer(*arguments)
        tokenizer.backend_tokenizer.normalizer = normalizers.Replace("grüße", "grusse")
        return tokenizer

    monkeypatch.setattr(data_module, "build_tokenizer", changed)
    plan = planned()
    assert plan.notes[0].figures["first"][0] == "episode 0 step 2: type 'grüße \"world\" 👋\\n'"
    assert plan.notes[0].figures["count"] == 3
    assert sorted(sentences_of(plan)) == sorted(
        f"{episode.id} step {number}"
        for episode in EPISODES
        for number, step in enumerate(episode.steps)
        if "grüße" not in step.action.text
    )


def test_a_run_without_a_learnable_step_is_refused(planned):
    with pytest.raises(RecipeError, match=r"data\.max_target_tokens"):
        planned(max_target_tokens=3).stream()


def test_a_goal_that_is_too_long_is_an_error_that_names_the_episode(planned):
    with pytest.raises(RecipeError, match=r"^episode 0: the goal .*data\.max_source_tokens \(4\)"):
        planned(max_source_tokens=4).stream()


def test_without_history_every_step_is_written_as_the_first(planned):
    plan = planned(control="no_history", past_screens=2)
    for about, sentence in sentences_of(plan).items():
        episode, number = (int(part) for part in about.split(" step "))
        one = EPISODES[episode]
        alone = plan.kind.sentences.build(replace(one, steps=one.steps[number:]), 0, sentence.screens)
        assert (len(sentence.screens), sentence.input_ids) == (1, alone.input_ids)
    tokens = [len(sentence) for sentence in sentences_of(plan).values()]
    assert sum(tokens) == sum(item.window.tokens for item in plan.order.items)


def test_past_screens_come_first(planned):
    plan = planned(past_screens=2)
    stored = plan.kind.features.steps(plan.shards, 2)
    found = sentences_of(plan)
    assert [len(found[f"2 step {number}"].screens) for number in range(4)] == [1, 2, 3, 3]
    assert np.array_equal(np.stack(found["2 step 4"].screens), np.stack(stored)[2:5])


def test_on_grey_screens_only_the_features_differ_and_are_those_of_a_grey_screen(planned):
    grey, seeing = sentences_of(planned(control="grey_screens")), sentences_of(planned())
    extractor = load_extractor(FeatureSettings(extractor=chain_runs.EXTRACTOR))
    expected = extractor.extract([np.full_like(EPISODES[0].steps[0].screenshot, 128)])[0]
    for about, sentence in grey.items():
        assert (sentence.input_ids, sentence.labels) == (seeing[about].input_ids, seeing[about].labels)
        assert np.array_equal(sentence.screens[0], expected)


def test_the_extractor_is_loaded_once_for_grey_screens_and_must_be_that_of_the_store(planned, monkeypatch):
    loaded = []

    def load(settings, device, precision):
        loaded.append(precision)
        return load_extractor(settings, device, precision)

    monkeypatch.setattr(features_package, "load_extractor", load)
    plan = planned(control="grey_screens")
    plan.kind.features.manifest["extractor"]["precision"] = "bfloat16"
    first, second = plan.writer(), plan.writer()
    assert first.grey is second.grey
    assert loaded == ["bfloat16"]
    other = planned(control="grey_screens")
    other.kind.features.manifest["extractor"]["digest"] = "0" * 64
    with pytest.raises(CheckpointError, match="are not those that computed the features of this model's training"):
        other.writer()


def test_validation_reads_every_step_of_its_sample_once(planned):
    rows = planned().validation_rows(ValidationRecipe(split="train", episodes=2))
    read = [about for number in range(len(rows)) for about in rows[number]["about"]]
    assert len(read) == len(set(read)) == sum(len(EPISODES[index]) for index in {int(about[0]) for about in read})
    assert len({about[0] for about in read}) == 2


def test_features_are_checked_before_training(planned, folder, shards, features, tmp_path):
    with pytest.raises(RecipeError, match=r"data\.features is missing; .*vlm-agent features"):
        planned(features=None).stream()
    with pytest.raises(DatasetError, match=r"has no manifest\.json"):
        planned(features=str(tmp_path)).stream()
    other = tiny.write_shards(tmp_path / "other", EPISODES[:1])
    with pytest.raises(DatasetError, match="is of other shards"):
        planned(shards=str(other)).stream()


def test_the_data_of_a_resumed_run_must_have_the_same_features(planned, features, tmp_path):
    plan = planned()
    manifest = json.loads((features / "manifest.json").read_text())
    other = planned()
    other.kind.features.manifest["files"][0]["sha256"] = "0"
    assert plan.data_digest != other.data_digest
    assert manifest["files"][0]["sha256"] != "0"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data": {"sentences": "trajectory", "future": 3}}, "remove future; .* sentences: chain_of_actions"),
        ({"data": {"sentences": "trajectory", "history": 3}}, "history needs past_screens, a number"),
        ({"data": {"sentences": "trajectory", "features": "x"}}, "remove features"),
        ({"data": {"max_tokens": 100}}, r"data\.max_source_tokens and data\.max_target_tokens; remove"),
        ({"training": {"batch_size": None, "batch_tokens": 100}}, r"remove training\.batch_tokens"),
    ],
)
def test_keys_that_do_not_fit_are_refused(shards, tmp_path, keys, message):
    content = chain_runs.recipe(shards, None, tmp_path / "run")
    del content["data"]["features"]
    for section, changes in keys.items():
        content[section] |= changes
    with pytest.raises(ValueError, match=message):
        Recipe(**content)


def test_saved_recipes_have_the_keys_of_their_kind_alone(shards, tmp_path):
    trajectory = yaml.safe_load(Recipe(**tiny.recipe(shards, tmp_path / "run")).to_yaml())
    chain = yaml.safe_load(Recipe(**chain_runs.recipe(shards, None, tmp_path / "run")).to_yaml())
    keys = {"future", "elements", "max_source_tokens", "max_target_tokens", "features", "group_by_length"}
    assert not keys & trajectory["data"].keys()
    assert {*chain["data"]} - {*trajectory["data"]} == keys
    assert {*trajectory["data"]} - {*chain["data"]} == {"max_note_tokens", "references"}


def test_a_model_refuses_sentences_that_it_cannot_read(shards, features, tmp_path):
    content = chain_runs.recipe(shards, features, tmp_path / "run")
    content["data"] = {"shards": str(shards)}
    with pytest.raises(RecipeError, match=r"data\.sentences: trajectory does not fit model\.encoder_decoder"):
        ShardDataModule(Recipe(**content)).stream()
    content = tiny.recipe(shards, tmp_path / "run")
    content["data"] |= {"sentences": "chain_of_actions", "features": str(features)}
    with pytest.raises(RecipeError, match=r"chain_of_actions does not fit model\.language_model, a llama_vit"):
        ShardDataModule(Recipe(**content)).stream()


def test_it_trains_validates_and_records_its_sources(shards, features, tmp_path, capsys):
    content = chain_runs.recipe(shards, features, tmp_path / "run", max_source_tokens=24)
    content["training"] |= {"validation": {"split": "train", "episodes": 2, "steps": 3}, "warmup_steps": 0}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(path)]) == OK
    printed = capsys.readouterr().out
    assert "sources of at most 24 tokens: of 16, " in printed
    assert "of actions exact" in printed
    figures = json.loads((tmp_path / "run" / "run.json").read_text())["figures"]
    assert figures["truncated_sources"]["lose_actions"] > 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "progress.jsonl").read_text().splitlines()]
    assert lines[0]["loss_plan"] > 0
    assert lines[0]["action_loss"] > 0
    assert {"eval_loss", "eval_accuracy", "eval_accuracy_tap"} <= lines[-1].keys()
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    extractor = json.loads((features / "manifest.json").read_text())["extractor"]
    assert {key: config["features"][key] for key in ("digest", "precision")} == {
        "digest": extractor["digest"],
        "precision": "float32",
    }


@pytest.mark.parametrize("data", [{}, {"past_screens": 2}, {"elements": True}], ids=["plain", "past", "elements"])
def test_a_dry_run_counts_the_content_of_all_rows_without_features(planned, data):
    plan = planned({"batch_size": 1}, **data)
    cost = plan.cost
    rows = [plan.stream()[number] for number in range(plan.order.rows_in(1))]
    dry = dry_run(planned({"batch_size": 1}, features=None, **data), Target(find_gpu("H100"), 1))
    assert dry.reads.load == sum((cost.workload(row) for row in rows), NO_WORK)
    assert (dry.reads.actions, dry.reads.episodes, dry.rows_a_pass, dry.steps) == (16, 3, 16, 16)
    table = run_rows(dry)
    assert table["tokens a target"].endswith(f"(at most {max(row['target_lengths'][0] for row in rows)})")
    longest = max(row["source_lengths"][0] for row in rows), max(row["target_lengths"][0] for row in rows)
    assert dry.reads.largest_row(RowSize(sentences=3)).tokens == 3 * sum(longest)
    assert dry.hours > 0


def test_inspect_counts_trajectories_alone_and_says_so(shards, features, tmp_path, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(chain_runs.recipe(shards, features, tmp_path / "run")))
    assert main(["inspect", str(shards), "--config", str(path)]) != OK
    assert "reads sentences of kind chain_of_actions; trajectories are needed here" in capsys.readouterr().err
