"""`data.references` in runs: read and counted, never of the sentence's own episode, and the same for the agent."""

import hashlib
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.data.notes import FORMS
from helpers.data.references import TRAIN, episode
from helpers.models.tiny_encoder import write_encoder
from safetensors.torch import load_file

from vlm_agent.agents import answer_step_by_step, demonstrated
from vlm_agent.agents.agent import episode_of
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.examples.encoder import EncoderError
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.shards.dataset import ShardDataset, manifest_content
from vlm_agent.episodes import recorded_screen
from vlm_agent.errors import CheckpointError, RecipeError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.models.run_layout import REFERENCES_FILE, trained
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.recipe_sentences import whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule

D_POT = {"past_screens": 0, "notes": FORMS["d_pot"]}
SHORT = 24
"""An untrained agent writes a plan to its limit."""
PASTS = [{}, {"max_tokens": 200}, {"past_screens": 2, "history": 1}, D_POT]
TEST = [episode("e0", "Open settings 1"), episode("e1", "buy a clock")]
"""The goal of the first is in train."""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), TRAIN)


def content_of(shards: Path, output: Path, encoder: Path | None, keys: dict | None = None, **data) -> dict:
    content = tiny.recipe(shards, output)
    content["model"]["train"] = {"language_model": "lora", "embeddings": "full"}
    content["model"]["lora"] = {"rank": 2, "dropout": 0.0}
    references = {} if encoder is None else {"references": {"encoder": str(encoder)} | (keys or {})}
    content["data"] |= references | data
    return content


def planned(shards: Path, encoder: Path | None, keys: dict | None = None, **data) -> ShardDataModule:
    content = content_of(shards, shards / "run", encoder, keys, **data)
    content["training"] = {"epochs": 1}
    return ShardDataModule(Recipe(**content))


def built(plan: ShardDataModule) -> list:
    stream = plan.stream()
    return [sentence for number in range(plan.order.rows_in(1)) for sentence in stream.sentences(number)]


# What a sentence reads


@pytest.mark.parametrize("data", PASTS)
@pytest.mark.parametrize("control", [None, "no_history", "grey_screens"])
def test_each_sentence_has_the_counted_length(shards, encoder, data, control):
    plan = planned(shards, encoder, control=control, **data)
    found = sorted(len(one) for one in built(plan))
    assert found == sorted(item.window.tokens for item in plan.order.items)
    assert found > sorted(len(one) for one in built(planned(shards, None, control=control, **data)))


def test_whole_episodes_are_counted_with_their_references(shards, encoder):
    sentences, dataset = planned(shards, encoder).sentences, ShardDataset(shards)
    assert whole_lengths(dataset, sentences).tolist() == [len(sentences.build(one)) for one in dataset]


def test_references_follow_the_goal_and_are_not_learned(shards, encoder):
    plan = planned(shards, encoder, {"max_actions": 2}, **D_POT)
    sentence = next(one for one in built(plan) if one.about == "t1 step 1")
    text = plan.tokenizer.decode([id_ for id_ in sentence.input_ids if id_ >= 0])
    same, _, done = text.partition("Goal: Open  settings 1\n")[2].split("\n")[:3]
    assert same == "Similar: open settings 1: step-t2-0; step-t2-1"
    assert done == "Done:"
    plain = next(one for one in built(planned(shards, None, **D_POT)) if one.about == "t1 step 1")
    assert (sentence.supervised, sentence.roles[-5:]) == (plain.supervised, plain.roles[-5:])


def test_an_episode_is_never_its_own_reference_and_an_identical_goal_is_counted(shards, encoder):
    plan = planned(shards, encoder, {"count": 4}, **D_POT)
    for one in TRAIN:
        lines = plan.sentences.references.lines(one.goal, one.id)
        assert not any(f"step-{one.id}-" in line for line in lines)
        assert len({line for line in lines if line.startswith("Similar: ")}) == len(lines) >= 3
    (note,) = plan.notes
    assert note.figures == {"episodes": 5, "with_an_identical_goal": 2}
    assert note.text == "2 of 5 episodes (40.0 %) have a reference with an identical goal (data.references)"


def test_references_are_episodes_of_the_run_alone(shards, encoder):
    plan = planned(shards, encoder, {"count": 10}, limit=2, **D_POT)
    learned = set(plan.learned_ids)
    found = "".join(plan.sentences.references.lines("buy milk", ""))
    assert len(learned) == 2 and all((f"step-{one.id}-" in found) == (one.id in learned) for one in TRAIN)


def test_without_a_plan_the_words_are_the_actions_of_the_language(shards, encoder):
    (line,) = planned(shards, encoder, {"count": 1}).sentences.references.lines("open settings 0", "")
    words = [tiny.LANGUAGE.encode(step.action, step.screen) for step in TRAIN[0].steps]
    assert line == f"Similar: open settings 0: {'; '.join(words)}\n"


def test_a_budget_that_is_too_small_is_an_error_and_no_goal_is_cut(shards, encoder):
    with pytest.raises(RecipeError, match=r"takes \d+ tokens with its goal .*data\.references\.max_actions"):
        planned(shards, encoder, max_tokens=60, **D_POT).order  # noqa: B018


def test_loader_processes_receive_no_encoder_and_read_the_same(shards, encoder):
    references = planned(shards, encoder, **D_POT).sentences.references
    lines = references.lines("open a clock", "")
    sent = pickle.dumps(references)
    assert len(sent) < 20_000 and b"BertModel" not in sent
    assert pickle.loads(sent).lines("open a clock", "") == lines  # noqa: S301


# Off


@pytest.mark.parametrize("data", PASTS)
def test_without_references_sentences_and_identities_are_as_if_the_key_did_not_exist(shards, data):
    plan = planned(shards, None, **data)
    assert plan.data_digest == hashlib.sha256(manifest_content(shards)).hexdigest()
    assert plan.notes == []
    digest = hashlib.sha256()
    for one in sorted(built(plan), key=lambda one: one.about):
        digest.update(json.dumps([one.input_ids, one.labels, one.kinds, one.roles, one.weights, one.about]).encode())
    assert digest.hexdigest()[:16] == EARLIER[PASTS.index(data)]


EARLIER = ("1ee5f5676bc59dfa", "1ee5f5676bc59dfa", "e5806dc147557e19", "4ac939691ed0c1ba")
"""Computed before the key existed."""


@pytest.mark.parametrize("kind", ["elements", "chain_of_actions"])
def test_other_kinds_of_sentences_have_no_references(shards, encoder, kind):
    with pytest.raises(ValueError, match="remove references; it has an effect only with sentences: trajectory"):
        Recipe(**content_of(shards, shards / "run", encoder, sentences=kind))


def test_without_the_encoder_there_is_one_line_before_training(shards, tmp_path, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content_of(shards, tmp_path / "run", Path("no-such-encoder"))))
    assert main(["train", "--config", str(path)]) == FAILED
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run" / "model").exists()


def test_another_encoder_is_other_data(shards, encoder, tmp_path):
    other = write_encoder(tmp_path / "other", seed=1)
    assert planned(shards, encoder).data_digest != planned(shards, other).data_digest


# The trained run


@pytest.fixture(scope="module")
def run(tmp_path_factory, encoder) -> Path:
    """A run whose shards no longer exist."""
    folder = tmp_path_factory.mktemp("trained")
    shards = tiny.write_shards(folder / "shards", TRAIN)
    content = content_of(shards, folder / "run", encoder, **D_POT, max_note_tokens=SHORT)
    content["training"] |= {"steps": 4, "save_steps": 2}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(folder / "recipe.yaml")]) == OK
    shards.rename(folder / "gone")
    return folder / "run"


@pytest.fixture(scope="module")
def agent(run) -> VlmAgent:
    return VlmAgent.from_run(run)


def test_the_record_of_a_run_has_the_share_of_identical_goals(run):
    assert json.loads((run / "run.json").read_text())["figures"]["references"]["with_an_identical_goal"] == 2


def test_the_agent_reads_the_sentences_of_training(run, agent):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["data"]["shards"] = str(run.parent / "gone")
    trained = {one.about: one.input_ids for one in built(ShardDataModule(Recipe(**recipe)))}
    for one in TRAIN:
        for number in range(len(one)):
            acted = episode_of(one.goal, demonstrated(one, number), recorded_screen(one, number))
            ids = agent.sentences.prompt(acted).input_ids
            assert ids == trained[f"{one.id} step {number}"][: len(ids)]


@pytest.mark.parametrize("control", [None, "no_history", "grey_screens"])
def test_batched_steps_answer_as_each_step_alone(agent, control):
    controlled = agent if control is None else ControlledAgent(agent, CONTROLS[control])
    episodes = [*TEST, TRAIN[1], TRAIN[3]]
    batched = controlled.answer_episodes(episodes)
    alone = answer_step_by_step(controlled, episodes)
    assert batched == alone
    shares = [[answer.diagnostics.reference_has_goal for answer in answers] for answers in batched]
    assert shares == [[answer.diagnostics.reference_has_goal for answer in answers] for answers in alone]
    assert [set(of_episode) for of_episode in shares] == [{True}, {False}, {True}, {False}]


def test_a_static_plan_follows_the_references(agent, run):
    content = yaml.safe_load((run / "recipe.yaml").read_text())["data"] | {"notes": {"plan": "first"}}
    static = planned(
        run.parent / "gone",
        Path(content["references"]["encoder"]),
        past_screens=0,
        notes={"plan": "first"},
        max_note_tokens=SHORT,
    )
    one = replace(agent, sentences=static.sentences)
    assert one.answer_episodes(TEST) == answer_step_by_step(one, TEST)


def test_a_chat_endpoint_is_asked_with_the_lines_of_training(agent):
    one = TRAIN[1]
    sentences = replace(agent.sentences, as_html=True)
    messages = trained_messages(sentences, one.goal, demonstrated(one, 1), recorded_screen(one, 1))
    lines = sentences.references.lines(one.goal, one.id)
    assert [turn["content"] for turn in messages[1:3]] == lines
    assert lines[0].startswith("Similar: open settings 1: step-t2-0")


def test_evaluate_reports_the_share_of_identical_goals(run, tmp_path, capsys):
    shards = tiny.write_shards(tmp_path / "shards", TEST, "test")
    words = ["--agent", str(run), "--shards", str(shards), "--output", str(tmp_path / "out"), "--controls", "none"]
    assert main(["evaluate", *words]) == OK
    counts = read_checked(tmp_path / "out" / "metrics.json", "")["trained"]["about"]["references"]
    assert (counts["episodes"], counts["episodes_with_an_identical_goal"]) == (2, 1)
    assert "nearest reference with an identical goal" in capsys.readouterr().out
    assert "2 training episodes of the run, nearest by" in (tmp_path / "out" / "report.html").read_text()


def record_digests(run: Path) -> None:
    """Makes edited files those of the run."""
    record = read_checked(run / "run.json", "")
    write_checked(run / "run.json", record | {"files": trained(run).digests})


def test_references_are_part_of_the_identity_of_an_agent(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = VlmSettings(run=str(copy)).identity()
    assert before == VlmSettings(run=str(run)).identity()
    (copy / REFERENCES_FILE).write_bytes((copy / REFERENCES_FILE).read_bytes() + b" ")
    for read in (VlmAgent.from_run, lambda run: VlmSettings(run=str(run)).identity()):
        with pytest.raises(CheckpointError, match=r"references\.parquet differs from the SHA-256 .*; restore it"):
            read(copy)
    record_digests(copy)
    assert VlmSettings(run=str(copy)).identity() != before
    (copy / REFERENCES_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"references\.parquet is missing"):
        VlmAgent.from_run(copy)


def test_another_encoder_than_that_of_the_training_is_refused(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    other = write_encoder(tmp_path / "other", seed=1)
    recipe = yaml.safe_load((copy / "recipe.yaml").read_text())
    recipe["data"]["references"]["encoder"] = str(other)
    (copy / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    record_digests(copy)
    with pytest.raises(EncoderError, match="is not the one that compared the goals"):
        VlmAgent.from_run(copy)


def test_a_merged_run_has_the_references_of_the_run(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    recipe = (copy / "recipe.yaml").read_text()
    (copy / "recipe.yaml").write_text(recipe.replace(str(run.parent / "shards"), str(run.parent / "gone")))
    record_digests(copy)
    assert main(["merge", str(copy), "--output", str(tmp_path / "merged")]) == OK
    assert (tmp_path / "merged" / REFERENCES_FILE).read_bytes() == (run / REFERENCES_FILE).read_bytes()
    assert VlmAgent.from_run(tmp_path / "merged").answer_episodes(TEST)


def test_a_resumed_run_has_the_weights_and_references_of_an_undisturbed_one(run, tmp_path):
    copy, (weights,) = tmp_path / "run", run.glob("model/*.safetensors")
    shutil.copytree(run, copy)
    (copy / "run.json").unlink()
    shutil.rmtree(copy / "model")
    shutil.rmtree(copy / "checkpoints" / "checkpoint-4", ignore_errors=True)
    assert (copy / "checkpoints" / "checkpoint-2").is_dir()
    shards, gone = run.parent / "shards", run.parent / "gone"
    gone.rename(shards)
    try:
        config = str(run.parent / "recipe.yaml")
        assert main(["train", "--config", config, "--output", str(copy)]) == OK
    finally:
        shards.rename(gone)
    assert (copy / REFERENCES_FILE).read_bytes() == (run / REFERENCES_FILE).read_bytes()
    one, other = load_file(weights), load_file(copy / "model" / weights.name)
    assert all((one[name] == other[name]).all() for name in one)
